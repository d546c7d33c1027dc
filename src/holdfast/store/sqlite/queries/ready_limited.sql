-- ready_limited: the next jobs of a queue with the fields that limits need.
-- ?1 queue, ?2 types as a JSON array or NULL, ?3 types without room as a JSON array
-- ?4, ?5 rank and place to continue behind
SELECT seq, type, limit_key, rank, moved
FROM job INDEXED BY job_ready
WHERE state = 'SCHEDULED' AND queue = ?1
    AND (rank, moved) > (?4, ?5)
    AND (?2 IS NULL OR type IN (SELECT value FROM json_each(?2)))
    AND type NOT IN (SELECT value FROM json_each(?3))
ORDER BY rank, moved
