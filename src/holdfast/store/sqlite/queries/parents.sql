-- parents: the dependencies of jobs with their states. ?1 seqs as a JSON array
SELECT edge.number, edge.child, job.id, coalesce(edge.ended, job.state)
FROM edge JOIN job ON job.seq = edge.parent
WHERE edge.child IN (SELECT value FROM json_each(?1))
