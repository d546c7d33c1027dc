-- clock: the server's time, the name of the database and the number of the server, and whether
-- there is news of transactions that it has not begun yet
-- There is when the schema was restored here from a server that had begun more of them.
SELECT clock_timestamp(), current_database()::text,
    (SELECT system_identifier FROM pg_control_system()), coalesce((
    SELECT t.xid FROM {schema}.journal t ORDER BY t.xid DESC, t.seq DESC LIMIT 1
) >= pg_snapshot_xmax(pg_current_snapshot()), false)
