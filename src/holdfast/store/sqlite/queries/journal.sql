-- journal: append to the history and the event stream. No detail is bound as an empty text
INSERT INTO journal (
    number, seq, previous, event, from_state, to_state, at, reason, attempt, lease_version,
    worker, detail
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, nullif(?12, ''))
