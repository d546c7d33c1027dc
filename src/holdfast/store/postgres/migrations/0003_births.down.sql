-- Rows written meanwhile would stay single rows.
LOCK TABLE {schema}.journal IN SHARE ROW EXCLUSIVE MODE;
COMMENT ON COLUMN {schema}.journal.from_state IS NULL;
INSERT INTO {schema}.journal (
    xid, seq, job, at, attempt, lease_version, to_state, event, reason, worker, gone
) OVERRIDING SYSTEM VALUE
SELECT xid, seq - 1, job, at, 0, 0, 'PENDING', 'submit', 'submitted', '', gone
FROM {schema}.journal WHERE from_state IS NULL AND event <> 'submit';
UPDATE {schema}.journal SET from_state = 'PENDING' WHERE from_state IS NULL AND event <> 'submit';
ALTER SEQUENCE {schema}.journal_seq_seq INCREMENT BY 1;
