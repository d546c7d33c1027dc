-- event_bounds: the newest event, and the one before the oldest that is kept
-- kept integer
WITH horizon AS MATERIALIZED (
    SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xid
), newest AS (
    SELECT t.xid, t.seq FROM {schema}.journal t
    WHERE t.xid < (SELECT xid FROM horizon) ORDER BY t.xid DESC, t.seq DESC LIMIT 1
), oldest AS (
    SELECT t.xid, t.seq FROM {schema}.journal t
    WHERE t.xid < (SELECT xid FROM horizon) ORDER BY t.xid DESC, t.seq DESC
    LIMIT 1 OFFSET %(kept)s::integer
)
SELECT newest.xid::text, newest.seq, oldest.xid::text, oldest.seq
FROM newest LEFT JOIN oldest ON true
