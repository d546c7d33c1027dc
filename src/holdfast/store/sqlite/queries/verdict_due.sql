-- verdict_due: waiting jobs on which a verdict may be due, oldest first. ?1 limit
SELECT seq
FROM job INDEXED BY job_ripe
WHERE state = 'PENDING' AND ripe = 1 AND held = 0
ORDER BY seq
LIMIT ?1
