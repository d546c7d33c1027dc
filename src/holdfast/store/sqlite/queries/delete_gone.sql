-- delete_gone: forget a deleted job. ?1 seq
DELETE FROM gone WHERE seq = ?1
