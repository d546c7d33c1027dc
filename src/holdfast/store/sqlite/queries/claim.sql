-- claim: SCHEDULED -> RUNNING
-- ?1 first number in the journal, ?2 seqs as a JSON array, ?3 now, ?4 token, ?5 worker
UPDATE job SET
    state = 'RUNNING',
    moved = ?1 + chosen.key,
    lift_at = NULL,
    revision = revision + 1,
    attempt = attempt + 1,
    updated_at = ?3,
    started_at = ?3,
    lease_version = coalesce(lease_version, 0) + 1,
    lease_until = ?3 + lease_ttl,
    token = ?4,
    worker = ?5
FROM (SELECT key, value FROM json_each(?2)) AS chosen
WHERE job.seq = chosen.value
