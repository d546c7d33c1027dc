-- expire_keys: delete expired deduplication keys. ?1 now
DELETE FROM key WHERE expires_at IS NOT NULL AND expires_at <= ?1
