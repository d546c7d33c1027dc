-- logs: the lines kept for jobs, oldest first
-- id text[]
SELECT b.id, l.line
FROM {schema}.body b JOIN {schema}.log l ON l.job = b.number
WHERE b.id = ANY (%(id)s::text[])
ORDER BY l.job, l.seq
