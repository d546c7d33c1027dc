-- delete_keys: free the keys a job holds. ?1 seq
DELETE FROM key WHERE seq = ?1
