-- rate_windows: the rate windows that are open
-- now timestamptz, null for the server's own
SELECT scope, started, until
FROM {schema}.rate_window
WHERE until > coalesce(%(now)s::timestamptz, clock_timestamp())
