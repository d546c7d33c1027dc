-- history: the transitions of jobs, with their numbers.
-- ?1 UUIDs, 16 bytes each, ?2 any other id or an empty text
WITH RECURSIVE place (start) AS (
    SELECT 1 WHERE length(?1) > 0
    UNION ALL
    SELECT start + 16 FROM place WHERE start + 16 <= length(?1)
),
wanted (id) AS (
    SELECT substr(?1, start, 16) FROM place UNION ALL SELECT ?2 WHERE ?2 <> ''
),
chain (id, number, previous) AS (
    SELECT job.id, journal.number, journal.previous
    FROM wanted
    CROSS JOIN job ON job.id = wanted.id
    JOIN journal ON journal.number = job.moved
    UNION ALL
    SELECT chain.id, journal.number, journal.previous
    FROM chain JOIN journal ON journal.number = chain.previous
)
SELECT
    chain.id, chain.number, journal.event, journal.from_state, journal.to_state, journal.at,
    journal.reason, journal.attempt, journal.lease_version, journal.worker, journal.detail
FROM chain JOIN journal ON journal.number = chain.number
