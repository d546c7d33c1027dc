-- stats_minutes: the measures from a minute to another, minute by minute, of all or all plain queues.
SELECT queue, type, priority, measure, bucket, count, top, minute
FROM minute
WHERE minute BETWEEN :first AND :last AND (NOT :plain_names OR instr(queue, '/') = 0)
ORDER BY minute, queue, type, priority, measure, bucket
