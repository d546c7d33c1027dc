-- parents_free: lock those of these jobs that nobody is writing right now
-- id text[]
-- returns what is known of each
SELECT b.id, j.number, j.state::text
FROM {schema}.body b JOIN {schema}.job j USING (number)
WHERE b.id = ANY (%(id)s::text[])
FOR NO KEY UPDATE OF j SKIP LOCKED
