-- ready_since: since when the oldest ready job of a queue has been ready. ?1 queue
-- The first of each rank is the oldest of its rank, and there are few ranks.
WITH RECURSIVE every (rank) AS (
    SELECT min(rank) FROM job INDEXED BY job_ready WHERE state = 'SCHEDULED' AND queue = ?1
    UNION ALL
    SELECT (
        SELECT min(job.rank) FROM job INDEXED BY job_ready
        WHERE state = 'SCHEDULED' AND queue = ?1 AND job.rank > every.rank
    ) FROM every WHERE every.rank IS NOT NULL
)
SELECT min((
    SELECT scheduled_at FROM job INDEXED BY job_ready
    WHERE state = 'SCHEDULED' AND queue = ?1 AND job.rank = every.rank ORDER BY moved LIMIT 1
)) FROM every WHERE every.rank IS NOT NULL
