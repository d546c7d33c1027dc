-- notify: wake whoever listens for these queues, once this transaction commits
-- channel text  queues text[]
-- returns for each where that is: the name of the database and the number of its server
SELECT pg_notify(%(channel)s, queue), current_database()::text,
    (SELECT system_identifier FROM pg_control_system())
FROM unnest(%(queues)s::text[]) AS q (queue)
