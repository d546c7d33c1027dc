-- parents_lock: lock jobs that others shall wait for, so that none ends unseen
-- id text[]
-- returns what is known of each; in the order of numbers, as all who lock several
SELECT b.id, j.number, j.state::text
FROM {schema}.body b JOIN {schema}.job j USING (number)
WHERE b.id = ANY (%(id)s::text[])
ORDER BY j.number
FOR NO KEY UPDATE OF j
