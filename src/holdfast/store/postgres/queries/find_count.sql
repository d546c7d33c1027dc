-- find_count: how many jobs match, counted up to a bound
-- most integer  and the filters, null where not asked
SELECT count(*)
FROM (
    SELECT FROM {schema}.job j JOIN {schema}.body b USING (number)
    WHERE {matching}
    LIMIT %(most)s::integer
) AS found
