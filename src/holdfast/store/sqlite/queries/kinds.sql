-- kinds: the kinds of records, by seeking from one kind to the next, without reading all records
WITH RECURSIVE found (kind) AS (
    SELECT min(kind) FROM record
    UNION ALL
    SELECT (SELECT min(record.kind) FROM record WHERE record.kind > found.kind)
    FROM found
    WHERE found.kind IS NOT NULL
)
SELECT kind FROM found WHERE kind IS NOT NULL
