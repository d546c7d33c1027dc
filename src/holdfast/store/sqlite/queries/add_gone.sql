-- add_gone: remember whose events these were.
INSERT INTO gone (seq, id, queue, type, moved) VALUES (?1, ?2, ?3, ?4, ?5)
