-- find_created_asc: matching jobs in the order of submission
-- place bigint: the last one seen, or null
-- limit integer  and the filters, null where there is none
SELECT {columns}, j.number
FROM {schema}.job j JOIN {schema}.body b USING (number)
WHERE {matching}
  -- On both tables, or a merge join reads one of them from its end.
  AND (%(place)s::bigint IS NULL
      OR (j.number > %(place)s::bigint AND b.number > %(place)s::bigint))
ORDER BY j.number
LIMIT %(limit)s::integer
