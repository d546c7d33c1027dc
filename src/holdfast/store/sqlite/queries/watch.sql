-- watch: what other processes wrote. ?1 newest number seen
SELECT
    (SELECT coalesce(max(number), 0) FROM journal),
    EXISTS (
        SELECT 1 FROM journal
        WHERE number > ?1 AND (
            to_state IN ('SCHEDULED', 'DELAYED', 'RETRYING')
            OR (from_state = 'RUNNING' AND EXISTS (SELECT 1 FROM rule WHERE concurrency IS NOT NULL))
        )
    ),
    (SELECT version FROM settings)
