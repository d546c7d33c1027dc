-- children: the jobs that a job spawned itself. ?1 id
SELECT job.id
FROM body JOIN job ON job.seq = body.seq
WHERE body.spawner = ?1
ORDER BY body.seq
