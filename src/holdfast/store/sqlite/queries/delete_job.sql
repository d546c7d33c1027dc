-- delete_job: delete a job. ?1 seq
DELETE FROM job WHERE seq = ?1 RETURNING id, queue, type, priority, state, moved
