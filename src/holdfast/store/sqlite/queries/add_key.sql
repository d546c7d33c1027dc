-- add_key: take a key that is free or whose time is over.
INSERT OR REPLACE INTO key (scope, key, digest, expires_at, seq) VALUES (?1, ?2, ?3, ?4, ?5)
