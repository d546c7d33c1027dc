-- queues: every queue of a namespace that has settings or jobs, with its counts
-- low, high text: the bounds of its queues  plain boolean: only queues without a slash
WITH counts AS (
    SELECT queue, state, sum(count)::bigint AS count
    FROM (
        SELECT queue, state::text, count FROM {schema}.tally
        UNION ALL SELECT queue, name, count FROM {schema}.delta WHERE minute IS NULL
    ) AS every
    WHERE queue >= %(low)s::text AND queue < %(high)s::text
      AND (NOT %(plain)s::boolean OR strpos(queue, '/') = 0)
    GROUP BY queue, state HAVING sum(count) <> 0
)
SELECT either.name, coalesce(q.paused, false), extract(epoch FROM q.ageing)::float8, c.state,
    c.count
FROM (
    SELECT name, paused, ageing FROM {schema}.queue
    WHERE name >= %(low)s::text AND name < %(high)s::text
      AND (NOT %(plain)s::boolean OR strpos(name, '/') = 0)
) AS q
FULL JOIN counts c ON c.queue = q.name
CROSS JOIN LATERAL (SELECT coalesce(q.name, c.queue) AS name) AS either
ORDER BY either.name, c.state
