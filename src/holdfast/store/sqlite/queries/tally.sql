-- tally: add to the number of jobs of one kind in a state.
-- ?1 queue, ?2 type, ?3 priority, ?4 state, ?5 change
INSERT INTO tally (queue, type, priority, state, count) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (queue, type, priority, state) DO UPDATE SET count = count + excluded.count
