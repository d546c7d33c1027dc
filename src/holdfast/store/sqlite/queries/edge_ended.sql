-- edge_ended: record that a dependency ended. ?1 state, ?2 parent, ?3 child
UPDATE edge SET ended = ?1 WHERE child = ?3 AND parent = ?2
