-- notify: report possible work to listeners, after the commit that brought it
-- channel text  queues text[]
--
-- A hint need not wait for the disk: only this transaction turns synchronous_commit off.
SELECT set_config('synchronous_commit', 'off', true), pg_notify(%(channel)s, queue)
FROM unnest(%(queues)s::text[]) AS q (queue)
