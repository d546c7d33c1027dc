-- stats_readings: the sums of the measures from a minute to another, of all or all plain queues.
SELECT queue, type, priority, measure, bucket, sum(count), max(top)
FROM minute
WHERE minute BETWEEN :first AND :last AND (NOT :plain_names OR instr(queue, '/') = 0)
GROUP BY queue, type, priority, measure, bucket
ORDER BY queue, type, priority, measure, bucket
