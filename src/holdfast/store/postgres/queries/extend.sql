-- extend: RUNNING stays RUNNING, the lease ends later
-- id text[]  token text[]  now timestamptz, null for the server's own
-- returns the position, new end and wish to cancel of each lease that is still the newest
--
-- IS TRUE keeps the planner from going through the index of running jobs, once for each lease.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
)
UPDATE {schema}.job j
SET lease_until = clock.now + b.lease_ttl
FROM clock, unnest(%(id)s::text[], %(token)s::text[]) WITH ORDINALITY AS f (id, token, position)
JOIN {schema}.body b ON b.id = f.id
WHERE j.number = b.number AND (j.state = 'RUNNING') IS TRUE AND j.lease_token = f.token
RETURNING f.position, j.lease_until, j.cancel
