-- parents_try_lock: lock those of these jobs that no other transaction has locked
-- id text[]
-- returns id, number and state of each
SELECT b.id, j.number, j.state::text
FROM {schema}.body b JOIN {schema}.job j USING (number)
WHERE b.id = ANY (%(id)s::text[])
FOR NO KEY UPDATE OF j SKIP LOCKED
