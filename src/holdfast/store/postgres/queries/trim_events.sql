-- trim_events: forget what only the event stream still knew, once it is no longer told
-- kept integer  most integer
-- returns how many were forgotten
WITH gone AS (
    DELETE FROM {schema}.journal WHERE (xid, seq) IN (
        SELECT t.xid, t.seq FROM {schema}.journal t
        WHERE (t.gone IS NOT NULL OR t.event IS NULL) AND t.seq <= (
            SELECT seq FROM {schema}.journal ORDER BY xid DESC, seq DESC LIMIT 1
        ) - 2 * %(kept)s::bigint
        LIMIT %(most)s::integer
    )
    RETURNING 1
)
SELECT count(*) FROM gone
