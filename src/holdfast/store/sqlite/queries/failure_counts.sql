-- failure_counts: category, code and type of every matching failure, from the index alone.
SELECT category, code, type
FROM job INDEXED BY job_failed
WHERE failed_at IS NOT NULL AND failed_at >= :after AND failed_at < :before
    AND state IN (SELECT value FROM json_each(:states))
    AND (:categories IS NULL OR category IN (SELECT value FROM json_each(:categories)))
    AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
    AND queue >= :low_name AND queue < :high_name
    AND (NOT :plain_names OR instr(queue, '/') = 0)
    AND (:code IS NULL OR code = :code)
