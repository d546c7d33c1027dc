-- delete_gone: delete the record of a deleted job. ?1 seq
DELETE FROM gone WHERE seq = ?1
