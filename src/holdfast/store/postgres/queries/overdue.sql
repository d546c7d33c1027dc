-- overdue: running jobs whose lease has ended, live jobs whose lifetime is over
-- leased timestamptz: no lease that ended before is worth a look; null to look at all
-- most integer  now timestamptz, null for the server's own
-- returns each job, out of order, the instant that passed and the number; these two alone for
-- one that somebody is writing right now: whoever takes the others back would wait for it
--
-- A job is locked as it is by then. It may have been renewed or answered since it was looked at.
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
), found AS MATERIALIZED (
    SELECT late.number, late.since
    FROM late ORDER BY late.since, late.number LIMIT %(most)s::integer
), free AS MATERIALIZED (
    SELECT j.*
    FROM unnest(ARRAY(SELECT number FROM found)) AS aim (number)
    JOIN {schema}.job j ON j.number = aim.number
    WHERE j.finished_at IS NULL
      AND least(CASE j.state WHEN 'RUNNING' THEN j.lease_until END, j.expires_at)
          <= (SELECT now FROM clock)
    FOR NO KEY UPDATE OF j SKIP LOCKED
)
SELECT {columns}, found.since, found.number
FROM found
LEFT JOIN free j ON j.number = found.number
LEFT JOIN {schema}.body b ON b.number = j.number
