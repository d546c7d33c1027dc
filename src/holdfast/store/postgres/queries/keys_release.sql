-- keys_release: delete locked keys that no job took
-- scope, key text[]
DELETE FROM {schema}.dedupe d
USING unnest(%(scope)s::text[], %(key)s::text[]) AS k (scope, key)
WHERE d.scope = k.scope AND d.key = k.key AND d.job_id IS NULL
