-- ended: whether a job has ended. ?1 id
SELECT 1 FROM job WHERE id = ?1 AND state IN ('COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED')
