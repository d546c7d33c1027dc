-- find_updated_desc: matching jobs, newest transition first
-- xid text, seq bigint: the last transition seen, or null
-- limit integer  and the filters, null where there is none
SELECT {columns}, t.xid::text, t.seq
FROM {schema}.journal t
JOIN {schema}.job j ON j.number = t.job AND j.xid = t.xid
JOIN {schema}.body b ON b.number = t.job
WHERE t.event IS NOT NULL
  AND NOT EXISTS (
      SELECT FROM {schema}.journal n
      WHERE n.job = t.job AND n.seq > t.seq AND n.event IS NOT NULL)
  AND (%(seq)s::bigint IS NULL OR (t.xid, t.seq) < (%(xid)s::text::xid8, %(seq)s::bigint))
  AND {matching}
ORDER BY t.xid DESC, t.seq DESC
LIMIT %(limit)s::integer
