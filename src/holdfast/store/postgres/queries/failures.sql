-- failures: jobs that failed, newest failure first
-- at timestamptz, place bigint: the last one seen, or null
-- limit integer, most_bytes bigint  and the filters, null where there is none
SELECT {brief}, j.failed_at, j.number
FROM {schema}.job j JOIN {schema}.body b USING (number)
WHERE {failed}
  AND (%(place)s::bigint IS NULL
       OR (j.failed_at, j.number) < (%(at)s::timestamptz, %(place)s::bigint))
ORDER BY j.failed_at DESC, j.number DESC
LIMIT %(limit)s::integer
