-- fan_in: jobs that wait for these and for everything they spawn
-- id text[]
SELECT p.id, c.id
FROM {schema}.body p
JOIN {schema}.edge e ON e.parent = p.number
JOIN {schema}.body c ON c.number = e.child
JOIN {schema}.job j ON j.number = e.child
WHERE p.id = ANY (%(id)s::text[]) AND c.dependency_kind = 'FAN_IN' AND j.state = 'PENDING'
ORDER BY e.child
