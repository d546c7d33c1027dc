-- take_in: make jobs and journal this server's own that were restored from another one
--
-- Every server numbers its transactions for itself. Of one whose number is yet to come, no job
-- would be claimed and no event told. All become part of one before any other: within it the
-- journal's own numbers keep the order. A job that moves on meanwhile keeps its transaction.
WITH told AS (
    UPDATE {schema}.journal SET xid = '1' WHERE xid <> '1'
)
UPDATE {schema}.job j SET xid = '1'
FROM {schema}.job was
WHERE was.number = j.number AND was.xid = j.xid AND was.xid <> '1'
