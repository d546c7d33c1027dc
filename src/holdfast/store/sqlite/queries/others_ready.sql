-- others_ready: whether a queue has ready jobs of types with room; counted, so that none is read.
-- ?1 queue, ?2 types as a JSON array or NULL, ?3 types without room as a JSON array
SELECT EXISTS (
    SELECT 1 FROM tally
    WHERE queue = ?1 AND state = 'SCHEDULED' AND count > 0
        AND (?2 IS NULL OR type IN (SELECT value FROM json_each(?2)))
        AND type NOT IN (SELECT value FROM json_each(?3))
)
