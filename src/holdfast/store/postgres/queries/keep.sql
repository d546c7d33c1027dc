-- keep: write a record if it has the expected version
-- kind text  key text  data bytea  version bigint: 0 if it must not exist, null for any
-- returns its new version if it was written
INSERT INTO {schema}.record AS kept (kind, key, data, version)
SELECT %(kind)s::text, %(key)s::text, %(data)s::bytea, 1
WHERE coalesce(%(version)s::bigint, 0) = 0
   OR EXISTS (
       SELECT 1 FROM {schema}.record WHERE kind = %(kind)s::text AND key = %(key)s::text
   )
ON CONFLICT (kind, key) DO UPDATE
SET data = excluded.data, version = kept.version + 1
WHERE kept.version = coalesce(%(version)s::bigint, kept.version)
RETURNING kept.version
