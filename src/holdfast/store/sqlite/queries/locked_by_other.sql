-- locked_by_other: whether another holder has an unexpired lock. ?1 name, ?2 holder, ?3 now
SELECT 1 FROM hold WHERE name = ?1 AND holder <> ?2 AND until > ?3
