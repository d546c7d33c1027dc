-- queue_counts: the number of jobs by queue and state.
SELECT queue, state, sum(count) FROM tally GROUP BY queue, state HAVING sum(count) <> 0
ORDER BY queue, state
