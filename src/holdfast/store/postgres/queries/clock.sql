-- clock: the server's time, the name of the database, the identifier of the server, and whether
-- the journal has transactions that the server has not begun yet
-- It has when the schema was restored from a server that had begun more of them.
SELECT clock_timestamp(), current_database()::text,
    (SELECT system_identifier FROM pg_control_system()), coalesce((
    SELECT t.xid FROM {schema}.journal t ORDER BY t.xid DESC, t.seq DESC LIMIT 1
) >= pg_snapshot_xmax(pg_current_snapshot()), false)
