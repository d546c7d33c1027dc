-- link: let a job wait for another, in whatever state that is. ?1 child, ?2 parent
-- An adopted job that was retried waits for what had failed before, see end_on_retry in
-- model/dependencies.py.
INSERT OR IGNORE INTO edge (child, parent, name, ended)
SELECT ?1, job.seq, job.id,
    CASE
        WHEN job.state IN ('FAILED', 'DEAD_LETTER', 'CANCELLED')
            AND child.generation > 1 AND child.state = 'PENDING'
            AND job.finished_at <= child.updated_at
            AND (SELECT body.kind FROM body WHERE body.seq = ?1) NOT IN ('AFTER_ANY', 'AFTER_ALL')
        THEN NULL
        WHEN job.state IN ('COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED') THEN job.state
    END
FROM job JOIN job AS child ON child.seq = ?1
WHERE job.seq = ?2
