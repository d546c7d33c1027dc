-- queues: the settings of every queue that has some.
SELECT name, paused, ageing FROM queue
