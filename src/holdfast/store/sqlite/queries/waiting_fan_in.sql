-- waiting_fan_in: PENDING jobs that wait for a job and all it spawns. ?1 id of that job
SELECT edge.child
FROM job AS spawner
JOIN edge ON edge.parent = spawner.seq
JOIN body ON body.seq = edge.child
JOIN job ON job.seq = edge.child
WHERE spawner.id = ?1 AND body.kind = 'FAN_IN' AND job.state = 'PENDING'
ORDER BY edge.child
