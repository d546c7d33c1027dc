-- tied: jobs that are to be joined to what they wait for
-- after bigint: the number of a job before them all  most integer: ties to look at
-- returns each with its number
SELECT {columns}, b.number
FROM {schema}.body b JOIN {schema}.job j USING (number)
WHERE b.number IN (
    SELECT child FROM (
        SELECT t.child FROM {schema}.tie t WHERE t.child > %(after)s::bigint
        ORDER BY t.child, t.parent LIMIT %(most)s::integer FOR UPDATE SKIP LOCKED
    ) AS chosen
)
