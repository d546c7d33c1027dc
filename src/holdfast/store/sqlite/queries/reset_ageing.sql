-- reset_ageing: set when ageing lifts the ready jobs of a queue.
-- ?1 queue, ?2 time: 0 for at once, NULL for never
UPDATE job INDEXED BY job_ready SET lift_at = ?2 WHERE state = 'SCHEDULED' AND queue = ?1
