-- overdue_leases: running jobs whose lease has ended, earliest first. ?1 now, ?2 limit
SELECT min(lease_until, expires_at), seq
FROM job INDEXED BY job_lease
WHERE state = 'RUNNING' AND lease_until <= ?1
ORDER BY lease_until, seq
LIMIT ?2
