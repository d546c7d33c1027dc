-- keys_lock: read which jobs have these keys, and lock the free ones
-- scope text[], key text[], in the same order everywhere, or two submissions wait for each other
-- now timestamptz: a key is free from its end on
WITH requested AS MATERIALIZED (
    SELECT scope, key FROM unnest(%(scope)s::text[], %(key)s::text[]) AS k (scope, key)
), held AS MATERIALIZED (
    SELECT d.scope, d.key, d.digest, d.job_id, d.expires_at
    FROM requested JOIN {schema}.dedupe d USING (scope, key)
    WHERE d.job_id IS NOT NULL AND (d.expires_at IS NULL OR d.expires_at > %(now)s::timestamptz)
), locked AS (
    INSERT INTO {schema}.dedupe AS old (scope, key)
    SELECT scope, key FROM requested
    WHERE NOT EXISTS (
        SELECT FROM held WHERE held.scope = requested.scope AND held.key = requested.key)
    ON CONFLICT (scope, key) DO UPDATE SET key = excluded.key
    RETURNING old.scope, old.key, old.digest, old.job_id, old.expires_at
)
SELECT scope, key, digest, job_id, expires_at,
    NOT EXISTS (SELECT FROM {schema}.body b WHERE b.id = held.job_id) AS deleted
FROM held
UNION ALL
-- A key that was taken just now belongs to a job that this statement may not see yet.
SELECT scope, key, digest, job_id, expires_at, false FROM locked
