-- stats_tallies: the number of jobs by queue, type, priority and state.
SELECT queue, type, priority, state, count FROM tally WHERE count <> 0
ORDER BY queue, type, priority, state
