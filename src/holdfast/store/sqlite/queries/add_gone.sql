-- add_gone: record the job of events that outlive it.
INSERT INTO gone (seq, id, queue, type, moved) VALUES (?1, ?2, ?3, ?4, ?5)
