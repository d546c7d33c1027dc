-- queue_counts: the number of jobs by queue and state, of a namespace.
SELECT queue, state, sum(count) FROM tally
WHERE queue >= :low_name AND queue < :high_name
    AND (NOT :plain_names OR instr(queue, '/') = 0)
GROUP BY queue, state HAVING sum(count) <> 0
ORDER BY queue, state
