-- running_queue: how many jobs of a queue are running. ?1 queue
SELECT coalesce(sum(count), 0) FROM tally WHERE queue = ?1 AND state = 'RUNNING'
