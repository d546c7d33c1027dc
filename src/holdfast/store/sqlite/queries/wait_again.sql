-- wait_again: open the dependencies of a retried job again, see end_on_retry in
-- model/dependencies.py; one that was deleted is not waited for. ?1 seq
UPDATE edge SET ended = CASE
    WHEN parent.state IS NULL OR parent.state = 'COMPLETED' THEN 'COMPLETED'
    WHEN (SELECT body.kind FROM body WHERE body.seq = ?1) IN ('AFTER_ANY', 'AFTER_ALL')
        AND parent.state IN ('FAILED', 'DEAD_LETTER', 'CANCELLED') THEN parent.state
END
FROM edge AS old LEFT JOIN job AS parent ON parent.seq = old.parent
WHERE edge.child = ?1 AND old.number = edge.number AND old.child = ?1
