-- reset_ageing: have the ready jobs of a queue judged anew. ?1 queue, ?2 lift at: 0, or NULL never
UPDATE job INDEXED BY job_ready SET lift_at = ?2 WHERE state = 'SCHEDULED' AND queue = ?1
