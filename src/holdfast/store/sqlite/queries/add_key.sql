-- add_key: take a deduplication key that is free or expired.
INSERT OR REPLACE INTO key (scope, key, digest, expires_at, seq) VALUES (?1, ?2, ?3, ?4, ?5)
