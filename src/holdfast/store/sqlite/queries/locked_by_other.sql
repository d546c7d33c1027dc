-- locked_by_other: whether another holder has an unexpired lock. ?1 name, ?2 holder, ?3 now, ?4 ttl
-- One that ends later than the ttl from now was taken before the clock was set back.
SELECT 1 FROM hold
WHERE name = ?1 AND holder <> ?2 AND until > ?3 AND (until <= ?3 + ?4 OR ?4 = 0)
