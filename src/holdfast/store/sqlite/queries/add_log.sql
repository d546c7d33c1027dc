-- add_log: write a log line.
INSERT INTO log (seq, at, level, message, attempt, fields) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
