-- queues: every queue of a namespace that has settings or jobs, with its counts
-- The first ready job of each level is the oldest of its level.
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
    c.count, CASE WHEN c.state = 'SCHEDULED' THEN (
        SELECT min(first.scheduled_at)
        FROM generate_series(0, 4) AS every (level)
        CROSS JOIN LATERAL (
            SELECT r.scheduled_at FROM {schema}.job r
            WHERE r.state = 'SCHEDULED' AND r.queue = c.queue AND r.level = every.level
            ORDER BY r.place LIMIT 1
        ) AS first
    ) END
FROM (
    SELECT name, paused, ageing FROM {schema}.queue
    WHERE name >= %(low)s::text AND name < %(high)s::text
      AND (NOT %(plain)s::boolean OR strpos(name, '/') = 0)
) AS q
FULL JOIN counts c ON c.queue = q.name
CROSS JOIN LATERAL (SELECT coalesce(q.name, c.queue) AS name) AS either
ORDER BY either.name, c.state
