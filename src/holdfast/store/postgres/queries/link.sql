-- link: children wait for parents from now on
-- child text[]  parent text[]  eager boolean[]: the end of any parent is enough
-- The parents' rows are locked by this transaction, or new in it. A running parent is written even
-- if its row stays the same: its handler may be about to end it with an older snapshot.
WITH pair AS MATERIALIZED (
    SELECT c.number AS child, p.number AS parent, given.eager, given.turn,
        c.dependency_kind IS DISTINCT FROM 'AFTER_ALL' AS strict,
        CASE WHEN j.state IN ('COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED')
             THEN j.state END AS ended
    FROM unnest(%(child)s::text[], %(parent)s::text[], %(eager)s::boolean[])
        WITH ORDINALITY AS given (child, parent, eager, turn)
    JOIN {schema}.body c ON c.id = given.child
    JOIN {schema}.body p ON p.id = given.parent
    JOIN {schema}.job j ON j.number = p.number
), edges AS (
    INSERT INTO {schema}.edge (child, parent, ended)
    SELECT child, parent, ended FROM pair ORDER BY turn
    ON CONFLICT (child, parent) DO NOTHING
    RETURNING child, parent, ended
), marked AS (
    UPDATE {schema}.job j SET awaited = true
    FROM (SELECT DISTINCT parent FROM edges) AS p
    WHERE j.number = p.parent AND (NOT j.awaited OR j.state = 'RUNNING')
), counted AS (
    SELECT edges.child, count(*) FILTER (WHERE edges.ended IS NULL) AS open,
        coalesce(bool_or((edges.ended <> 'COMPLETED' AND pair.strict)
            OR (pair.eager AND edges.ended IS NOT NULL)), false) AS due,
        bool_or(pair.eager) AS eager
    FROM edges JOIN pair USING (child, parent) GROUP BY edges.child
)
INSERT INTO {schema}.waiting AS old (child, open, due, eager)
SELECT child, open, due, eager FROM counted
ON CONFLICT (child) DO UPDATE SET open = old.open + excluded.open, due = old.due OR excluded.due
