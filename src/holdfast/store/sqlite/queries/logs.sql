-- logs: the log lines of a job, oldest first. ?1 id
SELECT at, level, message, attempt, fields
FROM log
WHERE seq = (SELECT seq FROM job WHERE id = ?1)
ORDER BY number
