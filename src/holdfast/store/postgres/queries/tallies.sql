-- tallies: how many jobs of each kind are in each state
SELECT queue, type, priority, state, sum(count)::bigint AS count
FROM (
    SELECT queue, type, priority, state::text, count FROM {schema}.tally
    UNION ALL
    SELECT queue, type, priority, name, count FROM {schema}.delta WHERE minute IS NULL
) AS every
GROUP BY queue, type, priority, state HAVING sum(count) <> 0
ORDER BY queue, type, priority, state
