-- ring: tell whoever listens that there may be work, after the commit that brought it
-- channel text  queues text[]
--
-- A hint is not worth waiting for the disk: only this transaction does without.
SELECT set_config('synchronous_commit', 'off', true), pg_notify(%(channel)s, queue)
FROM unnest(%(queues)s::text[]) AS q (queue)
