-- update_verdict_due_by_end: update whether a verdict is due after a dependency ended.
-- Also for a job already due: a failed dependency may have been reopened and completed.
-- ?1 seq, ?2 state of the dependency
UPDATE job SET ripe = CASE
    WHEN NOT EXISTS (SELECT 1 FROM edge WHERE edge.child = ?1 AND edge.ended IS NULL) THEN 1
    WHEN (SELECT body.kind FROM body WHERE body.seq = ?1) = 'AFTER_ALL' THEN 0
    WHEN ?2 <> 'COMPLETED' THEN 1
    WHEN (SELECT body.kind FROM body WHERE body.seq = ?1) = 'AFTER_ANY' THEN 1
    WHEN ripe THEN EXISTS (SELECT 1 FROM edge WHERE edge.child = ?1 AND edge.ended <> 'COMPLETED')
    ELSE 0
END
WHERE seq = ?1
