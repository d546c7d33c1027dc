-- key_holder: the job that holds a deduplication key. ?1 scope, ?2 key, ?3 now
SELECT coalesce(key.gone, job.id), key.digest
FROM key
LEFT JOIN job ON job.seq = key.seq
WHERE key.scope = ?1 AND key.key = ?2 AND (key.expires_at IS NULL OR key.expires_at > ?3)
