-- adopt_restored: make jobs and journal rows of another server this server's own
--
-- Every server numbers its transactions itself. With a number that is yet to come, no job would be
-- claimed and no event returned. All rows move to one transaction before any other: within it the
-- journal's own numbers keep the order. A job that changes meanwhile keeps its transaction.
WITH recorded AS (
    UPDATE {schema}.journal SET xid = '1' WHERE xid <> '1'
)
UPDATE {schema}.job j SET xid = '1'
FROM {schema}.job was
WHERE was.number = j.number AND was.xid = j.xid AND was.xid <> '1'
