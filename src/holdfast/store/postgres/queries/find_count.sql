-- find_count: how many jobs match, counted up to a limit
-- limit integer  and the filters, null where there is none
SELECT count(*)
FROM (
    SELECT FROM {schema}.job j JOIN {schema}.body b USING (number)
    WHERE {matching}
    LIMIT %(limit)s::integer
) AS found
