-- children: the jobs that a job spawned itself, in the order of submission
-- id text
SELECT b.id FROM {schema}.body b WHERE b.spawned_by = %(id)s ORDER BY b.number
