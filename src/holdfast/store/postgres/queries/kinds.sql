-- kinds: the kinds of records, from one kind to the next: it never reads all records of one
WITH RECURSIVE found (kind) AS (
    SELECT min(kind) FROM {schema}.record
    UNION ALL
    SELECT (SELECT min(r.kind) FROM {schema}.record AS r WHERE r.kind > found.kind)
    FROM found
    WHERE found.kind IS NOT NULL
)
SELECT kind FROM found WHERE kind IS NOT NULL ORDER BY kind
