-- seqs_of: the seqs of jobs. ?1 UUIDs, 16 bytes each, ?2 any other id or an empty text
WITH RECURSIVE place (start) AS (
    SELECT 1 WHERE length(?1) > 0
    UNION ALL
    SELECT start + 16 FROM place WHERE start + 16 <= length(?1)
),
wanted (id) AS (
    SELECT substr(?1, start, 16) FROM place UNION ALL SELECT ?2 WHERE ?2 <> ''
)
SELECT job.id, job.seq
FROM wanted CROSS JOIN job ON job.id = wanted.id
