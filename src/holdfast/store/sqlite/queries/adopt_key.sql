-- adopt_key: take a key for a deleted job, unless it is taken.
INSERT OR IGNORE INTO key (scope, key, digest, expires_at, seq, gone) VALUES (?1, ?2, ?3, ?4, 0, ?5)
