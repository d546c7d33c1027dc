-- lock: lock a name. ?1 name, ?2 holder, ?3 until, ?4 data
INSERT OR REPLACE INTO hold (name, holder, until, data) VALUES (?1, ?2, ?3, ?4)
