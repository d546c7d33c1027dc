-- queues: the settings of every queue that has any.
SELECT name, paused, ageing FROM queue
