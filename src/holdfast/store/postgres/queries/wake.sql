-- wake: report possible work to as many processes as there are jobs, after the commit
-- names text[]: what they wait for  counts integer[]: how many of them at most  tokens text[]: what
-- each receives  notices text[]: what all processes receive if none waits, or null
-- channel text: of all processes  pid integer: not this one
-- returns the names that no process waits for
--
-- A hint need not wait for the disk: only this transaction turns synchronous_commit off.
WITH {waiting}, sent AS MATERIALIZED (
    SELECT wanted.name, chosen.pid, CASE
        WHEN chosen.pid IS NOT NULL THEN pg_notify('holdfast_wake_' || chosen.pid, wanted.token)
        WHEN wanted.notice IS NOT NULL THEN pg_notify(%(channel)s::text, wanted.notice)
    END
    FROM unnest(%(names)s::text[], %(counts)s::integer[], %(tokens)s::text[], %(notices)s::text[])
        AS wanted (name, count, token, notice)
    LEFT JOIN LATERAL (
        SELECT pid FROM waiting
        WHERE objid IN (hashtext(wanted.name)::oid, hashtext('')::oid)
        ORDER BY random() LIMIT wanted.count
    ) AS chosen ON true
)
SELECT array_agg(name) FILTER (WHERE pid IS NULL), set_config('synchronous_commit', 'off', true)
FROM sent
