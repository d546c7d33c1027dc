-- queue_counts: how many jobs of a queue are in which state.
SELECT queue, state, sum(count) FROM tally GROUP BY queue, state HAVING sum(count) <> 0
ORDER BY queue, state
