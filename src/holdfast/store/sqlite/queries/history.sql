-- history: the transitions of a job, oldest first. ?1 id
WITH RECURSIVE chain (number, previous) AS (
    SELECT journal.number, journal.previous
    FROM job JOIN journal ON journal.number = job.moved
    WHERE job.id = ?1
    UNION ALL
    SELECT journal.number, journal.previous
    FROM chain JOIN journal ON journal.number = chain.previous
)
SELECT
    journal.event, journal.from_state, journal.to_state, journal.at, journal.reason,
    journal.attempt, journal.lease_version, journal.worker, journal.detail
FROM chain JOIN journal ON journal.number = chain.number
ORDER BY chain.number
