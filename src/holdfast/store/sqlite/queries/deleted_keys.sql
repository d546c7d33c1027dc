-- deleted_keys: open keys of deleted jobs. ?1, ?2 scope and key of the last one; ?3 now; ?4 how many
SELECT scope, key, digest, expires_at, gone
FROM key
WHERE (scope, key) > (?1, ?2) AND gone IS NOT NULL AND expires_at > ?3
ORDER BY scope, key
LIMIT ?4
