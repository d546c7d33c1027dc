-- running: how many jobs run, by queue, type and limit key
SELECT j.queue, j.type, b.limit_key, count(*)
FROM {schema}.job j JOIN {schema}.body b USING (number)
WHERE j.state = 'RUNNING'
GROUP BY j.queue, j.type, b.limit_key
