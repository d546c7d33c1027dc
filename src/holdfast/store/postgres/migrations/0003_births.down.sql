COMMENT ON COLUMN {schema}.journal.from_state IS NULL;
INSERT INTO {schema}.journal (
    xid, seq, job, at, attempt, lease_version, to_state, event, reason, worker, gone
) OVERRIDING SYSTEM VALUE
SELECT t.xid, t.seq - 1, t.job, coalesce(b.created_at, t.at), 0, 0, 'PENDING', 'submit',
    'submitted', '', t.gone
FROM {schema}.journal t LEFT JOIN {schema}.body b ON b.number = t.job
WHERE t.from_state IS NULL AND t.event <> 'submit';
UPDATE {schema}.journal SET from_state = 'PENDING' WHERE from_state IS NULL AND event <> 'submit';
ALTER TABLE {schema}.journal ALTER COLUMN seq SET INCREMENT BY 1;
