-- paused: the queues nobody may claim from.
SELECT name FROM queue WHERE paused = 1
