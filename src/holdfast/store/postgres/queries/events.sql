-- events: what happened after a cursor, as far as no running transaction can still add to it
-- xid text, seq bigint: the cursor  most integer
-- returns with each event whether the cursor is one of this journal, and the number of its newest
-- event; these alone when there is none to tell. A birth may be two events, see 0003_births.
WITH horizon AS MATERIALIZED (
    SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xid
), newest AS MATERIALIZED (
    SELECT t.seq, EXISTS (
        SELECT FROM {schema}.journal c WHERE c.xid = %(xid)s::text::xid8
          AND c.seq IN (%(seq)s::bigint, %(seq)s::bigint + 1)) AS known
    FROM {schema}.journal t
    WHERE t.xid < (SELECT xid FROM horizon) ORDER BY t.xid DESC, t.seq DESC LIMIT 1
), page AS (
    SELECT t.xid, t.seq, t.job, t.gone, t.event, t.from_state, t.to_state, t.at, t.reason,
        t.attempt, t.lease_version, t.worker, t.failure, t.progress
    FROM {schema}.journal t
    WHERE (t.xid, t.seq) > (%(xid)s::text::xid8, %(seq)s::bigint)
      AND t.xid < (SELECT xid FROM horizon)
    ORDER BY t.xid, t.seq
    LIMIT %(most)s::integer
)
SELECT t.xid::text, t.seq, coalesce(b.id, t.gone ->> 'id'), coalesce(b.type, t.gone ->> 'type'),
    coalesce(b.queue, t.gone ->> 'queue'), t.event, t.from_state::text, t.to_state::text, t.at,
    t.reason, t.attempt, t.lease_version, t.worker, t.failure, t.progress,
    newest.known, newest.seq
FROM newest LEFT JOIN page t ON true LEFT JOIN {schema}.body b ON b.number = t.job
