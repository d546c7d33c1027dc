-- stale_gone: deleted jobs without any event to keep. ?1 last number to delete
SELECT seq, moved FROM gone WHERE moved <= ?1
