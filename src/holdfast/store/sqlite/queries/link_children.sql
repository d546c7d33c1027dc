-- link_children: let a job wait for the jobs it spawned, in whatever state they are.
-- ?1 seq, ?2 id
INSERT INTO edge (child, parent, name, ended)
SELECT ?1, job.seq, job.id,
    CASE WHEN job.state IN ('COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED') THEN job.state END
FROM body JOIN job ON job.seq = body.seq
WHERE body.spawner = ?2
ORDER BY body.seq
ON CONFLICT (child, parent) DO UPDATE SET ended = excluded.ended
