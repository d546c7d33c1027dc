-- extend: RUNNING stays RUNNING, the lease ends later
-- id text[]  token text[]  now timestamptz, null for the server's own
-- returns position, end and cancel request of each lease that is still the newest, and whether it
-- was renewed
--
-- A job that another transaction has locked is skipped: other leases must not end meanwhile.
-- IS TRUE keeps the planner from going through the index of running jobs, once for each lease.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), held AS MATERIALIZED (
    SELECT f.position, f.token, j.number, b.lease_ttl, j.lease_until, j.cancel
    FROM unnest(%(id)s::text[], %(token)s::text[]) WITH ORDINALITY AS f (id, token, position)
    JOIN {schema}.body b ON b.id = f.id
    JOIN {schema}.job j ON j.number = b.number
    WHERE (j.state = 'RUNNING') IS TRUE AND j.lease_token = f.token
), free AS MATERIALIZED (
    SELECT j.number
    FROM held JOIN {schema}.job j USING (number)
    WHERE (j.state = 'RUNNING') IS TRUE AND j.lease_token = held.token
    FOR NO KEY UPDATE OF j SKIP LOCKED
), renewed AS (
    UPDATE {schema}.job j
    SET lease_until = clock.now + held.lease_ttl
    FROM clock, held JOIN free USING (number)
    WHERE j.number = held.number
    RETURNING held.position, j.lease_until, j.cancel
)
SELECT position, lease_until, cancel, true FROM renewed
UNION ALL
SELECT position, lease_until, cancel, false FROM held WHERE number NOT IN (SELECT number FROM free)
