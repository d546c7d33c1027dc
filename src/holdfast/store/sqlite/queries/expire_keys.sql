-- expire_keys: drop keys whose window is over. ?1 now
DELETE FROM key WHERE expires_at IS NOT NULL AND expires_at <= ?1
