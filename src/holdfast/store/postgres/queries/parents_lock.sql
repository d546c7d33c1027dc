-- parents_lock: lock jobs that others will wait for, so that none ends unseen
-- id text[]
-- returns id, number and state of each; locked by number, as in every statement that locks several
SELECT b.id, j.number, j.state::text
FROM {schema}.body b JOIN {schema}.job j USING (number)
WHERE b.id = ANY (%(id)s::text[])
ORDER BY j.number
FOR NO KEY UPDATE OF j
