-- add_body: write what never changes of a new job.
INSERT INTO body (seq, kind, spawner, correlation, tags, options, extra, payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
