-- age: lift ready jobs one level for every interval since they became ready.
-- ?1 queue, ?2 now, ?3 interval
UPDATE job SET
    rank = max(0, priority - (?2 - scheduled_at) / ?3),
    lift_at = CASE
        WHEN priority > (?2 - scheduled_at) / ?3
        THEN scheduled_at + ((?2 - scheduled_at) / ?3 + 1) * ?3
    END
WHERE lift_at IS NOT NULL AND queue = ?1 AND lift_at <= ?2
