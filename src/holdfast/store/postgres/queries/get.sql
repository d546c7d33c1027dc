-- get: jobs as they are now
-- id text[]
SELECT {columns}
FROM {schema}.body b JOIN {schema}.job j USING (number)
WHERE b.id = ANY (%(id)s::text[])
