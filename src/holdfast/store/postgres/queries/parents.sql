-- parents: every job this one waits or waited for, in the order it came to know them
-- id text
SELECT coalesce(p.id, e.gone)
FROM {schema}.body c
JOIN {schema}.edge e ON e.child = c.number
LEFT JOIN {schema}.body p ON p.number = e.parent
WHERE c.id = %(id)s
ORDER BY e.seq
