-- mark: record the journal numbers of a minute. ?1 minute, ?2 first, ?3 last
-- The last one may be larger than any number there is: searches compare times, too.
INSERT INTO mark (minute, first, last) VALUES (?1, ?2, ?3)
ON CONFLICT (minute) DO UPDATE SET
    first = min(first, excluded.first), last = max(last, excluded.last)
