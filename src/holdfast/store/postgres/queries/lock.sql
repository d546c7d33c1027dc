-- lock: take or renew a named lock unless another holder has it
-- name text  holder text  ttl float8 in seconds  data bytea
-- now timestamptz, null for the server's own
-- returns a row if the holder has it
INSERT INTO {schema}.hold AS mine (name, holder, until, data)
VALUES (%(name)s, %(holder)s, coalesce(%(now)s::timestamptz, clock_timestamp())
    + make_interval(secs => %(ttl)s::float8), %(data)s)
ON CONFLICT (name) DO UPDATE
SET holder = excluded.holder, until = excluded.until, data = excluded.data
WHERE mine.holder = excluded.holder
   OR mine.until <= coalesce(%(now)s::timestamptz, clock_timestamp())
   -- The clock was set back since. Not excluded.until: that was computed before this statement
   -- waited for the row of another holder, who may have computed later and written first.
   OR (%(ttl)s::float8 > 0 AND mine.until > coalesce(%(now)s::timestamptz, clock_timestamp())
           + make_interval(secs => %(ttl)s::float8))
RETURNING mine.name
