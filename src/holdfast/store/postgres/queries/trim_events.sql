-- trim_events: delete rows that only the event stream needed, once it no longer returns them
-- kept integer  limit integer
-- returns how many were deleted
WITH gone AS (
    DELETE FROM {schema}.journal WHERE (xid, seq) IN (
        SELECT t.xid, t.seq FROM {schema}.journal t
        WHERE (t.gone IS NOT NULL OR t.event IS NULL) AND t.seq <= (
            SELECT seq FROM {schema}.journal ORDER BY xid DESC, seq DESC LIMIT 1
        ) - 2 * %(kept)s::bigint
        LIMIT %(limit)s::integer
    )
    RETURNING 1
)
SELECT count(*) FROM gone
