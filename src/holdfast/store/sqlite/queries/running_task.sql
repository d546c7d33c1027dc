-- running_task: how many jobs of a type are running. ?1 type
SELECT coalesce(sum(count), 0) FROM tally WHERE type = ?1 AND state = 'RUNNING'
