-- browse_records: records in the order of their keys
-- ?1 kind, ?2 prefix of the key, ?3 first key, ?4 key to continue behind, ?5 limit
SELECT kind, key, data, version FROM record
WHERE kind = ?1 AND key >= ?3 AND key <> ?4 AND substr(key, 1, length(?2)) = ?2
ORDER BY key LIMIT ?5
