-- wait_again: a retried job waits for its dependencies again
-- child text  lenient boolean: a dependency may end in any state  eager boolean: any end is enough
-- returns whether a verdict may be due
--
-- The parents' rows are locked by this transaction; one that was deleted is not waited for. A
-- running parent is written for the reason given in link. See end_on_retry in model/dependencies.
WITH child AS (
    SELECT b.number FROM {schema}.body b WHERE b.id = %(child)s
), edges AS (
    UPDATE {schema}.edge e
    SET ended = CASE
        WHEN p.state IS NULL OR p.state = 'COMPLETED' THEN 'COMPLETED'::{schema}.state
        WHEN %(lenient)s AND p.state IN ('FAILED', 'DEAD_LETTER', 'CANCELLED') THEN p.state
    END
    FROM child
    JOIN {schema}.edge old ON old.child = child.number
    LEFT JOIN {schema}.job p ON p.number = old.parent
    WHERE e.child = old.child AND e.parent = old.parent
    RETURNING e.parent, e.ended
), marked AS (
    UPDATE {schema}.job j SET awaited = true
    FROM edges WHERE j.number = edges.parent AND j.state = 'RUNNING'
), counted AS (
    SELECT count(*) FILTER (WHERE ended IS NULL) AS open, count(ended) AS ended FROM edges
)
INSERT INTO {schema}.waiting (child, open, due, eager)
SELECT child.number, counted.open, %(eager)s AND counted.ended > 0, %(eager)s FROM child, counted
ON CONFLICT (child) DO UPDATE SET open = excluded.open, due = excluded.due
RETURNING due OR open = 0
