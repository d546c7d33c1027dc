-- keys_lock: lock keys, whether or not anyone has them, and see who does
-- scope text[], key text[], in one order everywhere, or two submissions could wait for each other
INSERT INTO {schema}.dedupe AS old (scope, key)
SELECT scope, key FROM unnest(%(scope)s::text[], %(key)s::text[]) AS k (scope, key)
ON CONFLICT (scope, key) DO UPDATE SET key = excluded.key
RETURNING old.scope, old.key, old.digest, old.job_id, old.expires_at
