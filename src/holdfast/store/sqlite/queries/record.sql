-- record: one record. ?1 kind, ?2 key
SELECT kind, key, data, version FROM record WHERE kind = ?1 AND key = ?2
