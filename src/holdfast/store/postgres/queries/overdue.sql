-- overdue: running jobs whose lease has ended, live jobs whose lifetime is over
-- leased timestamptz: no lease that ended before is worth a look; null to look at all
-- most integer  now timestamptz, null for the server's own
-- returns each job, out of order, and the instant that passed
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), late AS MATERIALIZED (
    (
        SELECT j.number, least(j.lease_until, j.expires_at) AS since
        FROM {schema}.job j
        WHERE j.state = 'RUNNING'
          AND least(j.lease_until, j.expires_at) >= coalesce(%(leased)s::timestamptz, '-infinity')
          AND least(j.lease_until, j.expires_at) <= (SELECT now FROM clock)
        ORDER BY least(j.lease_until, j.expires_at), j.number
        LIMIT %(most)s::integer
    ) UNION ALL (
        SELECT j.number, j.expires_at
        FROM {schema}.job j
        WHERE j.state IN ('PENDING', 'SCHEDULED', 'DELAYED', 'RETRYING')
          AND j.expires_at <= (SELECT now FROM clock)
        ORDER BY j.expires_at, j.number
        LIMIT %(most)s::integer
    )
)
SELECT {columns}, CASE WHEN j.state = 'RUNNING' THEN least(j.lease_until, j.expires_at)
    ELSE j.expires_at END, j.number
FROM unnest(ARRAY(
    SELECT late.number FROM late ORDER BY late.since, late.number LIMIT %(most)s::integer
)) AS found (number)
JOIN {schema}.job j ON j.number = found.number
JOIN {schema}.body b ON b.number = found.number
