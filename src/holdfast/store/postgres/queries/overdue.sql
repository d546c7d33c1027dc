-- overdue: running jobs whose lease has ended, live jobs whose lifetime is over
-- leased timestamptz: skip leases that ended before; null to read all
-- limit integer  now timestamptz, null for the server's own
-- returns each job, out of order, the instant that passed and the number; only the last two for a
-- job that another transaction has locked: the reaper would wait for it
--
-- A job is read again when it is locked: it may have been renewed or settled since it was found.
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
        LIMIT %(limit)s::integer
    ) UNION ALL (
        SELECT j.number, j.expires_at
        FROM {schema}.job j
        WHERE j.state IN ('PENDING', 'SCHEDULED', 'DELAYED', 'RETRYING')
          AND j.expires_at <= (SELECT now FROM clock)
        ORDER BY j.expires_at, j.number
        LIMIT %(limit)s::integer
    )
), found AS MATERIALIZED (
    SELECT late.number, late.since
    FROM late ORDER BY late.since, late.number LIMIT %(limit)s::integer
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
