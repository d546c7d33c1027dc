-- link: let a job wait for another, in whatever state that is. ?1 child, ?2 parent
INSERT OR IGNORE INTO edge (child, parent, name, ended)
SELECT ?1, job.seq, job.id,
    CASE WHEN job.state IN ('COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED') THEN job.state END
FROM job WHERE job.seq = ?2
