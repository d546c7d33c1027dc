-- parents: every job this one waits or waited for, in the order the links were made
-- id text
SELECT name FROM (
    SELECT coalesce(p.id, e.gone) AS name, e.seq
    FROM {schema}.body c
    JOIN {schema}.edge e ON e.child = c.number
    LEFT JOIN {schema}.body p ON p.number = e.parent
    WHERE c.id = %(id)s
    UNION ALL
    SELECT t.name, NULL
    FROM {schema}.body c JOIN {schema}.tie t ON t.child = c.number
    WHERE c.id = %(id)s
) AS known
ORDER BY seq
