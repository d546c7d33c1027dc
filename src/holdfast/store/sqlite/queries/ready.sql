-- ready: the next jobs of a queue. ?1 queue, ?2 types as a JSON array or NULL, ?3 limit
SELECT seq, moved
FROM job INDEXED BY job_ready
WHERE state = 'SCHEDULED' AND queue = ?1
    AND (?2 IS NULL OR type IN (SELECT value FROM json_each(?2)))
ORDER BY rank, moved
LIMIT ?3
