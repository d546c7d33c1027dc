-- running_key: how many jobs of a type with a limit key are running. ?1 type, ?2 limit key
SELECT count(*)
FROM job INDEXED BY job_limited
WHERE state = 'RUNNING' AND limit_key IS NOT NULL AND type = ?1 AND limit_key = ?2
