-- history: every transition of these jobs, oldest first
-- id text[]
SELECT b.id, t.event, t.from_state::text, t.to_state::text, t.at, t.reason, t.attempt,
    t.lease_version, t.worker, t.failure
FROM {schema}.body b JOIN {schema}.journal t ON t.job = b.number
WHERE b.id = ANY (%(id)s::text[]) AND t.event IS NOT NULL
ORDER BY t.job, t.seq
