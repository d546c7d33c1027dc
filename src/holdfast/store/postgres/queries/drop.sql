-- drop: forget a record while it has the version expected of it
-- kind text  key text  version bigint, null for any
-- returns a row when it was there
DELETE FROM {schema}.record
WHERE kind = %(kind)s AND key = %(key)s AND version = coalesce(%(version)s::bigint, version)
RETURNING version
