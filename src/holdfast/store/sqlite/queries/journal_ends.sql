-- journal_ends: append the ends of running jobs, before they are settled
-- ?1 number in the journal -> seq, as a JSON object
-- ?2 event, ?3 state, ?4 now, ?5 reason
INSERT INTO journal (
    number, seq, previous, event, from_state, to_state, at, reason, attempt, lease_version,
    worker, detail
)
SELECT
    CAST(ended.key AS INTEGER), job.seq, job.moved, ?2, 'RUNNING', ?3, ?4, ?5,
    job.attempt, job.lease_version, job.worker, NULL
FROM json_each(?1) AS ended CROSS JOIN job ON job.seq = ended.value
