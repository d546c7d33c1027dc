-- update_verdict_due_by_end: whether a verdict is due now that a dependency ended. ?1 seq, ?2 how it ended
-- A job that was ripe is judged anew: what ended badly may have been reopened and completed.
UPDATE job SET ripe = CASE
    WHEN ?2 <> 'COMPLETED' THEN 1
    WHEN NOT EXISTS (SELECT 1 FROM edge WHERE edge.child = ?1 AND edge.ended IS NULL) THEN 1
    WHEN (SELECT body.kind FROM body WHERE body.seq = ?1) = 'AFTER_ANY' THEN 1
    WHEN ripe THEN EXISTS (SELECT 1 FROM edge WHERE edge.child = ?1 AND edge.ended <> 'COMPLETED')
    ELSE 0
END
WHERE seq = ?1
