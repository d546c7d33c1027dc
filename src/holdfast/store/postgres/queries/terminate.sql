-- terminate: end the transactions of handlers that lost their lease
-- mark text[]: the names of their sessions, up to the job's id
-- returns a row for each session that was signalled
--
-- A session of another role that this role may not end is skipped.
SELECT pg_terminate_backend(a.pid)
FROM pg_stat_activity a
WHERE left(a.application_name, 25) = ANY (%(mark)s::text[])
  AND a.datname = current_database() AND pg_has_role(a.usesysid, 'USAGE')
