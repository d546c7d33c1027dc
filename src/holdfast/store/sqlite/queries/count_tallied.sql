-- count_tallied: the number of jobs that match, from the counters.
SELECT coalesce(sum(count), 0) FROM tally
WHERE (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
    AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND queue >= :low_name AND queue < :high_name
    AND (NOT :plain_names OR instr(queue, '/') = 0)
    AND (:priorities IS NULL OR priority IN (SELECT value FROM json_each(:priorities)))
