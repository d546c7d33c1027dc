-- adopt_keys: take keys for deleted jobs, unless they are taken
-- scope, key, digest, job_id text[]  expires_at timestamptz[]
INSERT INTO {schema}.dedupe (scope, key, digest, job_id, expires_at)
SELECT scope, key, digest, job_id, expires_at
FROM unnest(
    %(scope)s::text[], %(key)s::text[], %(digest)s::text[], %(job_id)s::text[],
    %(expires_at)s::timestamptz[]
) AS k (scope, key, digest, job_id, expires_at)
ON CONFLICT (scope, key) DO NOTHING
