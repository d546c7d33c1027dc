-- extend: renew a lease under its token. ?1 id, ?2 token, ?3 now
UPDATE job SET lease_until = ?3 + lease_ttl
WHERE id = ?1 AND state = 'RUNNING' AND token = ?2 AND lease_version IS NOT NULL
RETURNING lease_until, cancel
