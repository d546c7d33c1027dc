-- queues: every queue that has settings or jobs, with its counts
WITH counts AS (
    SELECT queue, state, sum(count)::bigint AS count
    FROM (
        SELECT queue, state::text, count FROM {schema}.tally
        UNION ALL SELECT queue, name, count FROM {schema}.delta WHERE minute IS NULL
    ) AS every GROUP BY queue, state HAVING sum(count) <> 0
)
SELECT either.name, coalesce(q.paused, false), extract(epoch FROM q.ageing)::float8, c.state,
    c.count
FROM {schema}.queue q
FULL JOIN counts c ON c.queue = q.name
CROSS JOIN LATERAL (SELECT coalesce(q.name, c.queue) AS name) AS either
ORDER BY either.name, c.state
