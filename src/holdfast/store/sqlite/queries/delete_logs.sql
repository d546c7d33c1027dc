-- delete_logs: delete the log lines of a job. ?1 seq
DELETE FROM log WHERE seq = ?1
