-- readings: the measures from a minute to another, summed, of all or all plain queues
-- since, last integer, minutes from the epoch  plain boolean: only queues without a slash
SELECT queue, type, priority, measure, bucket, sum(count)::bigint AS count, max(top) AS top
FROM (
    SELECT queue, type, priority, measure, bucket, count, top
    FROM {schema}.reading WHERE minute BETWEEN %(since)s::integer AND %(last)s::integer
    UNION ALL
    SELECT queue, type, priority, name, bucket, count, top
    FROM {schema}.delta WHERE minute BETWEEN %(since)s::integer AND %(last)s::integer
) AS every
WHERE NOT %(plain)s::boolean OR strpos(queue, '/') = 0
GROUP BY queue, type, priority, measure, bucket
ORDER BY queue, type, priority, measure, bucket
