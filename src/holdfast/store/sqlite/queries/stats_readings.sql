-- stats_readings: the sums of the measures from a minute on. ?1 first minute
SELECT queue, type, priority, measure, bucket, sum(count), max(top)
FROM minute
WHERE minute >= ?1
GROUP BY queue, type, priority, measure, bucket
ORDER BY queue, type, priority, measure, bucket
