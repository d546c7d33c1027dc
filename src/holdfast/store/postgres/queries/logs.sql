-- logs: the lines kept for a job, oldest first
-- id text
SELECT l.line
FROM {schema}.body b JOIN {schema}.log l ON l.job = b.number
WHERE b.id = %(id)s
ORDER BY l.seq
