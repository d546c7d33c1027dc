-- queue: the settings of one queue. ?1 name
SELECT paused, ageing FROM queue WHERE name = ?1
