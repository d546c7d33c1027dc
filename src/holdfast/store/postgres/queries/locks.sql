-- locks: the named locks that are held now
-- prefix text  now timestamptz, null for the server's own
SELECT name, holder, until, data
FROM {schema}.hold
WHERE starts_with(name, %(prefix)s)
  AND until > coalesce(%(now)s::timestamptz, clock_timestamp())
ORDER BY name
