-- unpaused: those of these queues that are not paused, in the order given
-- queues text[]
SELECT requested.queue
FROM unnest(%(queues)s::text[]) WITH ORDINALITY AS requested (queue, turn)
WHERE NOT EXISTS (SELECT FROM {schema}.queue q WHERE q.name = requested.queue AND q.paused)
ORDER BY requested.turn
