-- pending_remove: delete the pending links of children that have been linked
-- child text[]
-- returns each parent that was deleted before: it ended as it was seen or as the journal has it,
-- else as cancelled
WITH joined AS (
    DELETE FROM {schema}.tie t USING {schema}.body b
    WHERE b.id = ANY (%(child)s::text[]) AND t.child = b.number
    RETURNING t.child, t.parent, t.name, t.seen
), lost AS (
    INSERT INTO {schema}.edge (child, parent, ended, gone)
    SELECT child, parent, coalesce(seen, (
        SELECT t.to_state FROM {schema}.journal t
        WHERE t.job = joined.parent
          AND t.to_state IN ('COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED')
        ORDER BY t.seq DESC LIMIT 1
    ), 'CANCELLED'), name
    FROM joined
    WHERE NOT EXISTS (SELECT FROM {schema}.body b WHERE b.number = joined.parent)
    ON CONFLICT (child, parent) DO NOTHING
    RETURNING child, gone
), counted AS (
    INSERT INTO {schema}.waiting AS old (child, open, due, eager)
    SELECT DISTINCT child, 0, true, false FROM lost
    ON CONFLICT (child) DO UPDATE SET due = true
)
SELECT gone FROM lost
