-- trim_expired: delete keys whose window is over, named locks that have expired (such as those of
-- workers that stopped), and the records of rates of which nothing is used any more
-- limit integer: of each  now timestamptz, null for the server's own
-- returns the largest of the three counts
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), keys AS (
    DELETE FROM {schema}.dedupe WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {schema}.dedupe WHERE expires_at <= (SELECT now FROM clock)
        LIMIT %(limit)s::integer FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
), holds AS (
    DELETE FROM {schema}.hold WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {schema}.hold WHERE until <= (SELECT now FROM clock)
        LIMIT %(limit)s::integer FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
), windows AS (
    DELETE FROM {schema}.rate_window WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {schema}.rate_window WHERE until <= (SELECT now FROM clock)
        LIMIT %(limit)s::integer FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT greatest(
    (SELECT count(*) FROM keys), (SELECT count(*) FROM holds), (SELECT count(*) FROM windows)
)
