-- delete_keys: free the keys of a job. ?1 seq
DELETE FROM key WHERE seq = ?1
