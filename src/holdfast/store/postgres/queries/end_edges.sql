-- end_edges: record in the dependents of these jobs how they ended
-- parent bigint[]  state text[]
-- returns each parent and child, and whether the child is waiting now
--
-- Runs in the transaction that ended the parents, as a separate statement: only then it sees the
-- children that were added while that transaction waited for the parent's row.
WITH ended AS (
    UPDATE {schema}.edge e
    SET ended = p.state::{schema}.state
    FROM unnest(%(parent)s::bigint[], %(state)s::text[]) AS p (parent, state)
    JOIN {schema}.edge old ON old.parent = p.parent
    WHERE e.child = old.child AND e.parent = old.parent
    RETURNING e.child, e.parent, e.ended, old.ended IS NULL AS fresh
), ends AS (
    SELECT child, count(*) FILTER (WHERE fresh) AS count, bool_or(ended <> 'COMPLETED') AS fatal
    FROM ended GROUP BY child
), locked AS MATERIALIZED (
    SELECT w.child FROM {schema}.waiting w
    WHERE w.child IN (SELECT child FROM ends) ORDER BY w.child FOR NO KEY UPDATE
), counted AS (
    UPDATE {schema}.waiting w
    SET open = w.open - ends.count, due = w.due OR w.eager OR (ends.fatal AND NOT EXISTS (
        SELECT FROM {schema}.body b
        WHERE b.number = w.child AND b.dependency_kind = 'AFTER_ALL'))
    FROM ends JOIN locked USING (child)
    WHERE w.child = ends.child
)
SELECT ended.parent, ended.child, j.state = 'PENDING'
FROM ended JOIN {schema}.job j ON j.number = ended.child
