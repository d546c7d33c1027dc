-- followers: the jobs that are linked to a job they wait or waited for
-- id text
SELECT c.id
FROM {schema}.body p
JOIN {schema}.edge e ON e.parent = p.number
JOIN {schema}.body c ON c.number = e.child
WHERE p.id = %(id)s
