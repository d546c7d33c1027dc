-- add_alike_body: write what never changes of a job that was enqueued at its birth
-- the same for all rows: ?1 options; of each row: ?2 seq, ?3 payload
INSERT OR FAIL INTO body (seq, kind, options, payload) VALUES (?2, 'AFTER', ?1, ?3)
