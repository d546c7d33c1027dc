-- failures_within: the same as failures for a namespace.
SELECT failed_at, seq
FROM job INDEXED BY job_namespace_failed
WHERE instr(queue, '/') > 0 AND substr(queue, 1, instr(queue, '/')) = :low_name
    AND failed_at IS NOT NULL AND failed_at >= :after AND failed_at < :before
    AND (failed_at, seq) < (:at, :seq)
    AND state IN (SELECT value FROM json_each(:states))
    AND (:categories IS NULL OR category IN (SELECT value FROM json_each(:categories)))
    AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
    AND (:code IS NULL OR code = :code)
ORDER BY failed_at DESC, seq DESC
LIMIT :limit
