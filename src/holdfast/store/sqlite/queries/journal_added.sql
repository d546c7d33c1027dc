-- journal_added: append submission and enqueueing of jobs that were just written
-- ?1 first seq, ?2 last seq, ?3 reason of the submission, ?4 reason of the enqueueing
INSERT OR FAIL INTO journal (
    number, seq, previous, event, from_state, to_state, at, reason, attempt, lease_version,
    worker, detail
)
SELECT
    job.seq + edge.step, job.seq, iif(edge.step, job.seq, -1), edge.event, edge.before, edge.after,
    job.created_at, edge.reason, 0, 0, '', NULL
FROM job
CROSS JOIN (
    SELECT 0 AS step, 'submit' AS event, '' AS before, 'PENDING' AS after, ?3 AS reason
    UNION ALL SELECT 1, 'enqueue', 'PENDING', 'SCHEDULED', ?4
) AS edge
WHERE job.seq BETWEEN ?1 AND ?2
