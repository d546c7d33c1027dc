-- deleted_keys: open keys of deleted jobs
-- scope text, key text: those of the last one  now timestamptz  limit integer
SELECT d.scope, d.key, d.digest, d.expires_at, d.job_id
FROM {schema}.dedupe d
WHERE (d.scope, d.key) > (%(scope)s, %(key)s) AND d.expires_at > %(now)s::timestamptz
  AND d.job_id IS NOT NULL
  AND NOT EXISTS (SELECT FROM {schema}.body b WHERE b.id = d.job_id)
ORDER BY d.scope, d.key
LIMIT %(limit)s::integer
