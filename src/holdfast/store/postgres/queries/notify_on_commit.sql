-- notify_on_commit: wake workers that listen for these queues, once this transaction commits
-- channel text  queues text[]
-- returns the name of the database and the identifier of its server with each
SELECT pg_notify(%(channel)s, queue), current_database()::text,
    (SELECT system_identifier FROM pg_control_system())
FROM unnest(%(queues)s::text[]) AS q (queue)
