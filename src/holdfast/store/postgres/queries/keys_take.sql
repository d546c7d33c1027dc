-- keys_take: assign locked keys to new jobs
-- scope, key, digest, job_id text[]  expires_at timestamptz[]
UPDATE {schema}.dedupe d
SET digest = k.digest, job_id = k.job_id, expires_at = k.expires_at
FROM unnest(
    %(scope)s::text[], %(key)s::text[], %(digest)s::text[], %(job_id)s::text[],
    %(expires_at)s::timestamptz[]
) AS k (scope, key, digest, job_id, expires_at)
WHERE d.scope = k.scope AND d.key = k.key
