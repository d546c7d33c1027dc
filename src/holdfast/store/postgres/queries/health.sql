-- health: settings that decide how safe the server is and how well it serves the store
SELECT
    current_setting('server_version'),
    current_setting('fsync'),
    current_setting('synchronous_commit'),
    current_setting('full_page_writes'),
    current_setting('synchronous_standby_names'),
    pg_is_in_recovery(),
    (SELECT count(*) FROM pg_stat_replication),
    (SELECT max(version) FROM {schema}.migration),
    clock_timestamp(),
    (
        SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
        FROM pg_class c
        WHERE c.relnamespace = to_regnamespace('{schema}') AND c.relkind = 'r'
    ),
    ARRAY(
        SELECT name FROM (VALUES
            ('plan_cache_mode', 'force_generic_plan'), ('enable_seqscan', 'off'),
            ('enable_bitmapscan', 'off'), ('jit', 'off')
        ) AS needed (name, value)
        WHERE current_setting(name) <> value
        UNION ALL
        SELECT 'statement_timeout' WHERE current_setting('statement_timeout') = '0'
    ),
    coalesce((
        SELECT t.xid FROM {schema}.journal t ORDER BY t.xid DESC, t.seq DESC LIMIT 1
    ) >= pg_snapshot_xmax(pg_current_snapshot()), false),
    current_setting('transaction_read_only') = 'on',
    ARRAY(
        SELECT c.relname::text FROM pg_class c
        WHERE c.relnamespace = to_regnamespace('{schema}') AND c.relname <> 'migration'
          AND CASE c.relkind
              WHEN 'S' THEN NOT has_sequence_privilege(c.oid, 'USAGE')
              WHEN 'r' THEN NOT (
                  has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
                  AND has_table_privilege(c.oid, 'UPDATE')
                  AND has_table_privilege(c.oid, 'DELETE'))
              ELSE false END
        ORDER BY 1
    ),
    has_table_privilege('{schema}.job', 'UPDATE')
