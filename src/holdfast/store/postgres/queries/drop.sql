-- drop: delete a record if it has the expected version
-- kind text  key text  version bigint, null for any
-- returns a row if it existed
DELETE FROM {schema}.record
WHERE kind = %(kind)s AND key = %(key)s AND version = coalesce(%(version)s::bigint, version)
RETURNING version
