-- amend: write a job's new priority, due time and revision. A new priority is its rank until ageing
-- lifts it.
-- ?1 seq, ?2 priority, ?3 revision, ?4 lift at, -1 for never, ?5 due at, -1 for never
UPDATE job SET
    priority = ?2,
    rank = CASE WHEN priority <> ?2 THEN ?2 ELSE rank END,
    lift_at = CASE WHEN priority <> ?2 THEN nullif(?4, -1) ELSE lift_at END,
    due_at = nullif(?5, -1),
    revision = ?3
WHERE seq = ?1
