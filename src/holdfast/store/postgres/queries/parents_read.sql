-- parents_read: read jobs that others will wait for, without locking them
-- id text[]
-- returns with each whether it is new in this very transaction
SELECT b.id, j.number, j.state::text, j.priority::integer, b.depth,
    j.xid = coalesce(pg_current_xact_id_if_assigned(), '0')
FROM {schema}.body b JOIN {schema}.job j USING (number)
WHERE b.id = ANY (%(id)s::text[])
