-- close_edges: let a job wait no longer for what it waited for until now. ?1 seq
UPDATE edge SET ended = 'COMPLETED' WHERE child = ?1
