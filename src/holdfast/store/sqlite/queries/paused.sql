-- paused: the paused queues.
SELECT name FROM queue WHERE paused = 1
