-- promote: DELAYED -> SCHEDULED, RETRYING -> SCHEDULED
-- ?1 seq, ?2 number in the journal, ?3 now, ?4 lift at or -1
UPDATE job SET
    state = 'SCHEDULED',
    rank = priority,
    moved = ?2,
    lift_at = nullif(?4, -1),
    revision = revision + 1,
    updated_at = ?3,
    scheduled_at = ?3
WHERE seq = ?1 AND state IN ('DELAYED', 'RETRYING')
