-- readings: the measures since a minute, summed
-- since integer, minutes from the epoch
SELECT queue, type, priority, measure, bucket, sum(count)::bigint AS count, max(top) AS top
FROM (
    SELECT queue, type, priority, measure, bucket, count, top
    FROM {schema}.reading WHERE minute >= %(since)s::integer
    UNION ALL
    SELECT queue, type, priority, name, bucket, count, top
    FROM {schema}.delta WHERE minute >= %(since)s::integer
) AS every
GROUP BY queue, type, priority, measure, bucket
ORDER BY queue, type, priority, measure, bucket
