-- events: the events after a cursor, up to the oldest transaction that can still add some
-- xid text, seq bigint: the cursor  limit integer
-- returns with each event whether the cursor is in this journal, and the number of its newest
-- event; these two alone when there is no event. A submission may be two events, see 0003_births.
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
    LIMIT %(limit)s::integer
)
SELECT t.xid::text, t.seq, coalesce(b.id, t.gone ->> 'id'), coalesce(b.type, t.gone ->> 'type'),
    coalesce(b.queue, t.gone ->> 'queue'), t.event, t.from_state::text, t.to_state::text, t.at,
    t.reason, t.attempt, t.lease_version, t.worker, t.failure, t.progress,
    newest.known, newest.seq
FROM newest LEFT JOIN page t ON true LEFT JOIN {schema}.body b ON b.number = t.job
