-- notify_on_commit: wake workers that wait for these queues, once this transaction commits
-- The parameters are those of wake. One process more than there are jobs receives a token: until
-- the commit, some may be gone.
-- returns the name of the database and the identifier of its server with each
WITH {waiting}
SELECT CASE
        WHEN chosen.pid IS NOT NULL THEN pg_notify('holdfast_wake_' || chosen.pid, wanted.token)
        WHEN wanted.notice IS NOT NULL THEN pg_notify(%(channel)s::text, wanted.notice)
    END, current_database()::text, (SELECT system_identifier FROM pg_control_system())
FROM unnest(%(names)s::text[], %(counts)s::integer[], %(tokens)s::text[], %(notices)s::text[])
    AS wanted (name, count, token, notice)
LEFT JOIN LATERAL (
    SELECT pid FROM waiting
    WHERE objid IN (hashtext(wanted.name)::oid, hashtext('')::oid)
    ORDER BY random() LIMIT wanted.count + 1
) AS chosen ON true
