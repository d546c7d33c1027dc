-- evict: end the transactions of handlers whose jobs were taken back
-- mark text[]: what their sessions are called, up to the job's id
-- returns a row for each that was told to end
--
-- A session that we may not end, because it belongs to another role, is left alone.
SELECT pg_terminate_backend(a.pid)
FROM pg_stat_activity a
WHERE left(a.application_name, 25) = ANY (%(mark)s::text[])
  AND a.datname = current_database() AND pg_has_role(a.usesysid, 'USAGE')
