-- update_verdict_due: update whether a verdict on a waiting job may be due. ?1 seq
UPDATE job SET ripe = (
    SELECT CASE
        WHEN body.kind = 'AFTER_ANY'
        THEN EXISTS (SELECT 1 FROM edge WHERE edge.child = ?1 AND edge.ended IS NOT NULL)
        ELSE NOT EXISTS (SELECT 1 FROM edge WHERE edge.child = ?1 AND edge.ended IS NULL)
            OR (body.kind <> 'AFTER_ALL'
                AND EXISTS (SELECT 1 FROM edge WHERE edge.child = ?1 AND edge.ended <> 'COMPLETED'))
    END
    FROM body WHERE body.seq = ?1
)
WHERE seq = ?1
