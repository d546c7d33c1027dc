-- event_bounds: the newest event, and the one before the oldest that is kept
-- kept integer
-- A row with a submission and the transition that followed at once is two events.
WITH horizon AS MATERIALIZED (
    SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xid
), newest AS (
    SELECT t.xid, t.seq FROM {schema}.journal t
    WHERE t.xid < (SELECT xid FROM horizon) ORDER BY t.xid DESC, t.seq DESC LIMIT 1
), backwards AS (
    SELECT t.xid, t.seq,
        CASE WHEN t.from_state IS NULL AND t.event <> 'submit' THEN 2 ELSE 1 END AS events
    FROM {schema}.journal t
    WHERE t.xid < (SELECT xid FROM horizon) ORDER BY t.xid DESC, t.seq DESC
    LIMIT %(kept)s::integer + 1
), counted AS (
    SELECT xid, seq, events,
        sum(events) OVER (ORDER BY xid DESC, seq DESC ROWS UNBOUNDED PRECEDING) AS so_far
    FROM backwards
), oldest AS (
    SELECT xid, seq FROM counted WHERE so_far - events >= %(kept)s::integer
    ORDER BY xid DESC, seq DESC LIMIT 1
)
SELECT newest.xid::text, newest.seq, oldest.xid::text, oldest.seq
FROM newest LEFT JOIN oldest ON true
