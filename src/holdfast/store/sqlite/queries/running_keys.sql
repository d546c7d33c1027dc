-- running_keys: the limit keys under which jobs of a type are running. ?1 type
SELECT DISTINCT limit_key
FROM job INDEXED BY job_limited
WHERE state = 'RUNNING' AND limit_key IS NOT NULL AND type = ?1
