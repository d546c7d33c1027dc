-- count_tallied: how many jobs match filters that the counters know.
SELECT coalesce(sum(count), 0) FROM tally
WHERE (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
    AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND (:priorities IS NULL OR priority IN (SELECT value FROM json_each(:priorities)))
