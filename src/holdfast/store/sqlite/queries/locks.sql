-- locks: unexpired named locks with this prefix. ?1 prefix, ?2 now
SELECT name, holder, until, data FROM hold
WHERE substr(name, 1, length(?1)) = ?1 AND until > ?2
ORDER BY name
