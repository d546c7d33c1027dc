-- read_claimed: jobs that were just claimed, as far as most of them differ, and whether there
-- is more to one. ?1 numbers as a JSON array
SELECT
    job.seq, job.id, body.payload, job.created_at, job.scheduled_at, job.expires_at,
    body.options, job.type, job.queue, job.revision, job.priority, job.max_attempts,
    job.attempt, job.lease_version, job.lease_until,
    job.generation > 1 OR coalesce(
        job.due_at, job.cancel, job.failure, job.progress, checkpoint.data, job.limit_key,
        body.spawner, body.correlation, body.tags, body.extra, nullif(body.kind, 'AFTER')
    ) IS NOT NULL
FROM job
JOIN body ON body.seq = job.seq
LEFT JOIN checkpoint ON checkpoint.seq = job.seq
WHERE job.seq IN (SELECT value FROM json_each(?1))
