-- parents: the dependencies of jobs with their states, also of those that were deleted.
-- ?1 seqs as a JSON array
SELECT edge.number, edge.child, edge.name, coalesce(edge.ended, job.state)
FROM edge LEFT JOIN job ON job.seq = edge.parent
WHERE edge.child IN (SELECT value FROM json_each(?1))
