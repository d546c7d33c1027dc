-- stats_tallies: how many jobs of which kind are in which state.
SELECT queue, type, priority, state, count FROM tally WHERE count <> 0
ORDER BY queue, type, priority, state
