-- spawned: the jobs that a job spawned before another was submitted. ?1 id of the spawner, ?2 seq
SELECT body.seq, job.id
FROM body JOIN job ON job.seq = body.seq
WHERE body.spawner = ?1 AND body.seq < ?2
ORDER BY body.seq
