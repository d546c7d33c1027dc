-- wait_for_children: a job that ran waits for the jobs it spawned, and no longer for others
-- child text  kind text: null for AFTER  strict boolean: every child must complete
-- returns whether a verdict may be due
--
-- The rows of the job and of those it spawned are locked by this transaction. A running one is
-- written for the reason given in link.
WITH waiter AS (
    UPDATE {schema}.body b SET dependency_kind = %(kind)s
    WHERE b.id = %(child)s
    RETURNING b.number, b.id
), spawned AS MATERIALIZED (
    SELECT waiter.number AS child, b.number AS parent,
        CASE WHEN j.state IN ('COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED')
             THEN j.state END AS ended
    FROM waiter
    JOIN {schema}.body b ON b.spawned_by = waiter.id
    JOIN {schema}.job j ON j.number = b.number
), closed AS (
    UPDATE {schema}.edge e SET ended = 'COMPLETED'
    FROM waiter
    WHERE e.child = waiter.number AND e.parent NOT IN (SELECT parent FROM spawned)
), edges AS (
    INSERT INTO {schema}.edge (child, parent, ended)
    SELECT child, parent, ended FROM spawned ORDER BY parent
    ON CONFLICT (child, parent) DO UPDATE SET ended = excluded.ended
), marked AS (
    UPDATE {schema}.job j SET awaited = true
    FROM spawned WHERE j.number = spawned.parent AND (NOT j.awaited OR j.state = 'RUNNING')
), counted AS (
    SELECT count(*) FILTER (WHERE ended IS NULL) AS open,
        coalesce(bool_or(ended <> 'COMPLETED') AND %(strict)s, false) AS due
    FROM spawned
)
INSERT INTO {schema}.waiting (child, open, due, eager)
SELECT waiter.number, counted.open, counted.due, false FROM waiter, counted
ON CONFLICT (child) DO UPDATE SET open = excluded.open, due = excluded.due, eager = false
RETURNING due OR open = 0
