-- notify: wake whoever listens for these queues, once this transaction commits
-- channel text  queues text[]
SELECT pg_notify(%(channel)s, queue) FROM unnest(%(queues)s::text[]) AS q (queue)
