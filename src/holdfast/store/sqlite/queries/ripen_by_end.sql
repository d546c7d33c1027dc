-- ripen_by_end: a verdict may be due now that a dependency ended. ?1 seq, ?2 how it ended
UPDATE job SET ripe = 1
WHERE seq = ?1 AND (
    ?2 <> 'COMPLETED'
    OR NOT EXISTS (SELECT 1 FROM edge WHERE edge.child = ?1 AND edge.ended IS NULL)
    OR (SELECT body.kind FROM body WHERE body.seq = ?1) = 'AFTER_ANY'
)
