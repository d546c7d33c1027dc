-- keep_keys: name a deleted job in the keys that outlive it. ?1 seq, ?2 its id
UPDATE key SET gone = ?2 WHERE seq = ?1
