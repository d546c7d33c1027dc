-- add_alike_body: write the unchanging part of a job that is enqueued at once
-- the same for all rows: ?1 options; of each row: ?2 seq, ?3 payload
INSERT OR FAIL INTO body (seq, kind, options, payload) VALUES (?2, 'AFTER', ?1, ?3)
