-- records: records of one kind by key
-- kind text  key text[]
SELECT kind, key, data, version
FROM {schema}.record
WHERE kind = %(kind)s AND key = ANY(%(key)s)
