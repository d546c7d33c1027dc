-- locks: unexpired named locks with this prefix. ?1 prefix, ?2 now, ?3 after the prefix
SELECT name, holder, until, data FROM hold
WHERE name >= ?1 AND name < ?3 AND until > ?2
ORDER BY name
