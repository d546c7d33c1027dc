-- logs: what a job logged, oldest first. ?1 id
SELECT at, level, message, attempt, fields
FROM log
WHERE seq = (SELECT seq FROM job WHERE id = ?1)
ORDER BY number
