-- trim_keys: forget keys whose window is over
-- most integer  now timestamptz, null for the server's own
DELETE FROM {schema}.dedupe WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.dedupe
    WHERE expires_at <= coalesce(%(now)s::timestamptz, clock_timestamp())
    LIMIT %(most)s::integer
    FOR UPDATE SKIP LOCKED
))
