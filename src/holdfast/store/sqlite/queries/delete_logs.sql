-- delete_logs: delete what a job logged. ?1 seq
DELETE FROM log WHERE seq = ?1
