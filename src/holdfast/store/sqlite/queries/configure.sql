-- configure: set a queue's settings. ?1 name, ?2 paused, ?3 ageing
INSERT OR REPLACE INTO queue (name, paused, ageing) VALUES (?1, ?2, ?3)
