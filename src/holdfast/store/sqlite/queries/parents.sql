-- parents: what jobs wait for, and how that stands. ?1 numbers as a JSON array
SELECT edge.number, edge.child, job.id, coalesce(edge.ended, job.state)
FROM edge JOIN job ON job.seq = edge.parent
WHERE edge.child IN (SELECT value FROM json_each(?1))
