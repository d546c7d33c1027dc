-- queues: the settings of every queue of a namespace that has any.
SELECT name, paused, ageing FROM queue
WHERE name >= :low_name AND name < :high_name
    AND (NOT :plain_names OR instr(name, '/') = 0)
