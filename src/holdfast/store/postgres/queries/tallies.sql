-- tallies: how many jobs of each kind are in each state, of a namespace
-- low, high text: the bounds of its queues  plain boolean: only queues without a slash
SELECT queue, type, priority, state, sum(count)::bigint AS count
FROM (
    SELECT queue, type, priority, state::text, count FROM {schema}.tally
    UNION ALL
    SELECT queue, type, priority, name, count FROM {schema}.delta WHERE minute IS NULL
) AS every
WHERE queue >= %(low)s::text AND queue < %(high)s::text
  AND (NOT %(plain)s::boolean OR strpos(queue, '/') = 0)
GROUP BY queue, type, priority, state HAVING sum(count) <> 0
ORDER BY queue, type, priority, state
