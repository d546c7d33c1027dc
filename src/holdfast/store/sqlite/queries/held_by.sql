-- held_by: the seq of a running job if this token is its newest lease. ?1 id, ?2 token
SELECT seq FROM job WHERE id = ?1 AND state = 'RUNNING' AND token = ?2 AND lease_version IS NOT NULL
