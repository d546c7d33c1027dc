-- overdue_lifetimes: live jobs whose lifetime has ended, earliest first. ?1 now, ?2 limit
SELECT CASE
        WHEN state = 'RUNNING' AND lease_until IS NOT NULL THEN min(lease_until, expires_at)
        ELSE expires_at
    END, seq
FROM job INDEXED BY job_lifetime
WHERE finished_at IS NULL AND expires_at <= ?1
    AND state IN ('PENDING', 'SCHEDULED', 'DELAYED', 'RUNNING', 'RETRYING')
ORDER BY expires_at, seq
LIMIT ?2
