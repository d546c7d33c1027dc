-- journal_claims: append the claims of jobs, before they are claimed
-- ?1 first number in the journal, ?2 seqs as a JSON array, ?3 now, ?4 worker
INSERT INTO journal (
    number, seq, previous, event, from_state, to_state, at, reason, attempt, lease_version,
    worker, detail
)
SELECT
    ?1 + chosen.key, job.seq, job.moved, 'claim', 'SCHEDULED', 'RUNNING', ?3, 'claimed',
    job.attempt + 1, coalesce(job.lease_version, 0) + 1, ?4, NULL
FROM json_each(?2) AS chosen CROSS JOIN job ON job.seq = chosen.value
