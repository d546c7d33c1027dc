-- waiting: the processes that wait for work, and for what; part of wake and notify_on_commit
-- pid integer: not this one
-- The first key of their locks is a constant, the second one the hash of what they wait for.
waiting AS MATERIALIZED (
    SELECT DISTINCT objid, pid
    FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND granted
      AND classid = hashtext('holdfast wake {schema}')::oid
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND pid <> %(pid)s::integer
)
