-- prunable: jobs that ended in a state long ago and that no live job depends on, oldest first.
-- ?1 state, ?2 latest end, ?3 limit
SELECT finished_at, seq
FROM job INDEXED BY job_finished
WHERE finished_at IS NOT NULL AND state = ?1 AND finished_at <= ?2
    AND NOT EXISTS (
        SELECT 1 FROM edge JOIN job AS child ON child.seq = edge.child
        WHERE edge.parent = job.seq
            AND child.state IN ('PENDING', 'SCHEDULED', 'DELAYED', 'RUNNING', 'RETRYING')
    )
ORDER BY finished_at, seq
LIMIT ?3
