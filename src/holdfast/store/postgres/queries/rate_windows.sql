-- rate_windows: the rate windows that have not ended, and the time
-- now timestamptz, null for the server's own
SELECT scope, started, until, clock.now
FROM {schema}.rate_window
    CROSS JOIN (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now OFFSET 0) AS clock
WHERE until > clock.now
