-- browse_records: records in the order of their keys
-- ?1 kind, ?2 beginning of the key, ?3 behind this key, ?4 at most
SELECT kind, key, data, version FROM record
WHERE kind = ?1 AND key >= ?2 AND substr(key, 1, length(?2)) = ?2 AND (?3 = '' OR key > ?3)
ORDER BY key LIMIT ?4
