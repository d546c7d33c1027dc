-- holds: the names held now that begin so. ?1 beginning, ?2 now
SELECT name, holder, until, data FROM hold
WHERE substr(name, 1, length(?1)) = ?1 AND until > ?2
ORDER BY name
