-- waiting_for: PENDING jobs that wait for any of these. ?1 seqs as a JSON array
SELECT edge.parent, edge.child
FROM edge JOIN job ON job.seq = edge.child
WHERE edge.parent IN (SELECT value FROM json_each(?1)) AND job.state = 'PENDING'
