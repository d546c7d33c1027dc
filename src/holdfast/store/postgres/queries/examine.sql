-- examine: what decides how safe and how far a server's answers are
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
    )
