-- unpaused: which of these queues may be served, in the order given
-- queues text[]
SELECT asked.queue
FROM unnest(%(queues)s::text[]) WITH ORDINALITY AS asked (queue, turn)
WHERE NOT EXISTS (SELECT FROM {schema}.queue q WHERE q.name = asked.queue AND q.paused)
ORDER BY asked.turn
