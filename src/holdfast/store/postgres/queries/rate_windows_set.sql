-- rate_windows_set: record what claims use of their rates; see StartPace.recorded
-- scope text[]  started integer[]  until timestamptz[]
INSERT INTO {schema}.rate_window (scope, started, until)
SELECT scope, started, until
FROM unnest(%(scope)s::text[], %(started)s::integer[], %(until)s::timestamptz[])
    AS w (scope, started, until)
ON CONFLICT (scope) DO UPDATE SET started = excluded.started, until = excluded.until
