-- deletable: the seq of an ended job that no live job depends on. ?1 id
SELECT seq
FROM job
WHERE id = ?1 AND state IN ('COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED')
    AND NOT EXISTS (
        SELECT 1 FROM edge JOIN job AS child ON child.seq = edge.child
        WHERE edge.parent = job.seq
            AND child.state IN ('PENDING', 'SCHEDULED', 'DELAYED', 'RUNNING', 'RETRYING')
    )
