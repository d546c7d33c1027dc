-- due: jobs that are due, earliest first. ?1 now, ?2 limit
SELECT seq, moved, state, queue, type, priority, attempt, lease_version, worker
FROM job INDEXED BY job_due
WHERE state IN ('DELAYED', 'RETRYING') AND due_at <= ?1
ORDER BY due_at, seq
LIMIT ?2
