-- delete_keys: free the keys of a job that have no window. ?1 seq
DELETE FROM key WHERE seq = ?1 AND expires_at IS NULL
