-- events: what happened after a cursor, as far as no running transaction can still add to it
-- xid text, seq bigint: the cursor  most integer
-- returns with each event the number of the newest one
WITH horizon AS MATERIALIZED (
    SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xid
), newest AS MATERIALIZED (
    SELECT t.seq FROM {schema}.journal t
    WHERE t.xid < (SELECT xid FROM horizon) ORDER BY t.xid DESC, t.seq DESC LIMIT 1
)
SELECT t.xid::text, t.seq, coalesce(b.id, t.gone ->> 'id'), coalesce(b.type, t.gone ->> 'type'),
    coalesce(b.queue, t.gone ->> 'queue'), t.event, t.from_state::text, t.to_state::text, t.at,
    t.reason, t.attempt, t.lease_version, t.worker, t.failure, t.progress,
    (SELECT seq FROM newest)
FROM {schema}.journal t LEFT JOIN {schema}.body b ON b.number = t.job
WHERE (t.xid, t.seq) > (%(xid)s::text::xid8, %(seq)s::bigint)
  AND t.xid < (SELECT xid FROM horizon)
ORDER BY t.xid, t.seq
LIMIT %(most)s::integer
