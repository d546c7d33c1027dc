-- readings_within: the same for a namespace; each minute is searched for its queues
-- since, last integer, minutes from the epoch  low, high text: the bounds of its queues
SELECT queue, type, priority, measure, bucket, sum(count)::bigint AS count, max(top) AS top
FROM (
    SELECT r.queue, r.type, r.priority, r.measure, r.bucket, r.count, r.top
    FROM generate_series(
        %(since)s::integer,
        (SELECT least(max(minute), %(last)s::integer) FROM {schema}.reading)) AS every (minute)
    CROSS JOIN LATERAL (
        SELECT * FROM {schema}.reading
        WHERE minute = every.minute AND queue >= %(low)s::text AND queue < %(high)s::text
        OFFSET 0
    ) AS r
    UNION ALL
    SELECT queue, type, priority, name, bucket, count, top
    FROM {schema}.delta
    WHERE minute BETWEEN %(since)s::integer AND %(last)s::integer
        AND queue >= %(low)s::text AND queue < %(high)s::text
) AS every
GROUP BY queue, type, priority, measure, bucket
ORDER BY queue, type, priority, measure, bucket
