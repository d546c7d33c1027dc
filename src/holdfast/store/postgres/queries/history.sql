-- history: every transition of these jobs, each job's oldest first
-- id text[]
--
-- Job by job through the index: for a plain join the planner may read the whole journal.
SELECT b.id, t.event, t.from_state::text, t.to_state::text, t.at, t.reason, t.attempt,
    t.lease_version, t.worker, t.failure
FROM {schema}.body b CROSS JOIN LATERAL (
    SELECT j.event, j.from_state, j.to_state, j.at, j.reason, j.attempt, j.lease_version,
        j.worker, j.failure
    FROM {schema}.journal j
    WHERE j.job = b.number AND j.event IS NOT NULL
    ORDER BY j.seq
    OFFSET 0
) AS t
WHERE b.id = ANY (%(id)s::text[])
