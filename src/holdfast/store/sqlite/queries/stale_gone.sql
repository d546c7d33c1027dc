-- stale_gone: deleted jobs without an event that is kept. ?1 last number that is dropped
SELECT seq, moved FROM gone WHERE moved <= ?1
