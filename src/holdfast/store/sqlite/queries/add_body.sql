-- add_body: write the unchanging part of a new job. NULL is bound as an empty text
INSERT INTO body (seq, kind, spawner, correlation, tags, options, extra, payload)
VALUES (?1, ?2, nullif(?3, ''), nullif(?4, ''), nullif(?5, ''), ?6, nullif(?7, ''), ?8)
