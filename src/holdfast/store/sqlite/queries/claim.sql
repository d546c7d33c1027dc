-- claim: SCHEDULED -> RUNNING
-- ?1 seq, ?2 number in the journal, ?3 token, ?4 worker, ?5 now
UPDATE job SET
    state = 'RUNNING',
    moved = ?2,
    lift_at = NULL,
    revision = revision + 1,
    attempt = attempt + 1,
    updated_at = ?5,
    started_at = ?5,
    lease_version = coalesce(lease_version, 0) + 1,
    lease_until = ?5 + lease_ttl,
    token = ?3,
    worker = ?4
WHERE seq = ?1 AND state = 'SCHEDULED'
