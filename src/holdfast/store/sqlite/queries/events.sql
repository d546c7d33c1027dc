-- events: events behind a number, in order. ?1 number, ?2 limit
SELECT
    journal.number,
    coalesce(job.id, gone.id),
    coalesce(job.type, gone.type),
    coalesce(job.queue, gone.queue),
    journal.event, journal.from_state, journal.to_state, journal.at, journal.reason,
    journal.attempt, journal.lease_version, journal.worker, journal.detail
FROM journal
LEFT JOIN job ON job.seq = journal.seq
LEFT JOIN gone ON gone.seq = journal.seq
WHERE journal.number > ?1
ORDER BY journal.number
LIMIT ?2
