-- stats_tallies: the number of jobs by queue, type, priority and state, of a namespace.
SELECT queue, type, priority, state, count FROM tally
WHERE count <> 0 AND queue >= :low_name AND queue < :high_name
    AND (NOT :plain_names OR instr(queue, '/') = 0)
ORDER BY queue, type, priority, state
