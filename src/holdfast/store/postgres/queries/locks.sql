-- locks: the named locks that are held now
-- prefix text  last text, after all names with the prefix  now timestamptz, null for the server's own
SELECT name, holder, until, data
FROM {schema}.hold
WHERE name >= %(prefix)s
  AND name < %(last)s
  AND until > coalesce(%(now)s::timestamptz, clock_timestamp())
ORDER BY name
