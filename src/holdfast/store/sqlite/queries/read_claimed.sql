-- read_claimed: the common fields of jobs that were just claimed, and whether a job has others
-- beside body.extra.
-- ?1 seqs as a JSON array
SELECT
    job.seq, job.id, body.payload, job.created_at, job.scheduled_at, job.expires_at,
    body.options, job.type, job.queue, job.revision, job.priority, job.max_attempts,
    job.attempt, job.lease_version, job.lease_until, body.extra,
    job.generation > 1 OR coalesce(
        job.due_at, job.cancel, job.failure, job.progress, checkpoint.data, job.limit_key,
        body.spawner, body.correlation, body.tags, nullif(body.kind, 'AFTER')
    ) IS NOT NULL
FROM job
JOIN body ON body.seq = job.seq
LEFT JOIN checkpoint ON checkpoint.seq = job.seq
WHERE job.seq IN (SELECT value FROM json_each(?1))
