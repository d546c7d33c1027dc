-- gate: claims under limits go one after the other, or two would both find the last place free
-- now timestamptz, null for the server's own
-- returns the time
SELECT coalesce(%(now)s::timestamptz, clock_timestamp())
FROM pg_advisory_xact_lock(hashtextextended('holdfast limits {schema}', 0))
