-- stats_readings_within: the same for a namespace; each minute is searched for its queues.
WITH RECURSIVE every (minute) AS (
    SELECT min(minute) FROM minute WHERE minute BETWEEN :first AND :last
    UNION ALL
    SELECT (
        SELECT min(m.minute) FROM minute AS m WHERE m.minute > every.minute AND m.minute <= :last
    ) FROM every
    WHERE every.minute IS NOT NULL
)
SELECT queue, type, priority, measure, bucket, sum(count), max(top)
FROM every CROSS JOIN minute ON minute.minute = every.minute
WHERE queue >= :low_name AND queue < :high_name
GROUP BY queue, type, priority, measure, bucket
ORDER BY queue, type, priority, measure, bucket
