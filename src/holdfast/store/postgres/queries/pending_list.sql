-- pending_list: jobs with pending links
-- after bigint: only jobs with a higher number  limit integer: links to read
-- returns each with its number
SELECT {columns}, b.number
FROM {schema}.body b JOIN {schema}.job j USING (number)
WHERE b.number IN (
    SELECT child FROM (
        SELECT t.child FROM {schema}.tie t WHERE t.child > %(after)s::bigint
        ORDER BY t.child, t.parent LIMIT %(limit)s::integer FOR UPDATE SKIP LOCKED
    ) AS chosen
)
