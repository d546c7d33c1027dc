-- history: the transitions of a job, oldest first. ?1 id
SELECT event, from_state, to_state, at, reason, attempt, lease_version, worker, detail
FROM journal
WHERE seq = (SELECT seq FROM job WHERE id = ?1) AND event <> 'progress'
ORDER BY number
