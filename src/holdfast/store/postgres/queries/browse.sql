-- browse: records of one kind in the order of their keys
-- kind text  prefix text  after text  limit integer
SELECT kind, key, data, version
FROM {schema}.record
WHERE kind = %(kind)s AND key >= %(prefix)s AND starts_with(key, %(prefix)s)
  AND key > %(after)s
ORDER BY key
LIMIT %(limit)s
