-- tied: jobs that are to be joined to what they wait for
-- most integer: ties to look at
SELECT {columns}
FROM {schema}.body b JOIN {schema}.job j USING (number)
WHERE b.number IN (
    SELECT child FROM (
        SELECT t.child FROM {schema}.tie t ORDER BY t.child, t.parent
        LIMIT %(most)s::integer FOR UPDATE SKIP LOCKED
    ) AS chosen
)
