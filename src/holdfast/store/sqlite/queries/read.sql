-- read: jobs by seq. ?1 seqs as a JSON array, ?2 the largest payload, result or checkpoint in bytes
SELECT
    job.seq, job.id, job.type, job.queue, job.state, job.revision, job.priority,
    job.max_attempts, job.attempt, job.generation, job.held,
    job.created_at, job.updated_at, job.due_at, job.scheduled_at, job.started_at,
    job.finished_at, job.expires_at,
    job.token, job.lease_version, job.worker, job.lease_until, iif(length(job.result) > ?2, NULL, job.result),
    body.options, iif(length(body.payload) > ?2, x'', body.payload),
    coalesce(
        job.cancel, job.failure, job.progress, checkpoint.data, job.limit_key,
        body.spawner, body.correlation, body.tags, body.extra, nullif(body.kind, 'AFTER')
    ) IS NOT NULL,
    job.cancel, job.failure, job.progress,
    iif(length(checkpoint.data) > ?2, NULL, checkpoint.data), job.limit_key,
    body.kind, body.spawner, body.correlation, body.tags, body.extra
FROM job
JOIN body ON body.seq = job.seq
LEFT JOIN checkpoint ON checkpoint.seq = job.seq
WHERE job.seq IN (SELECT value FROM json_each(?1))
