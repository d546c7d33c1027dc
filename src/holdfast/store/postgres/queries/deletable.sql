-- deletable: lock the ended jobs among these
-- id text[]
SELECT j.number
FROM {schema}.body b JOIN {schema}.job j USING (number)
WHERE b.id = ANY (%(id)s::text[])
  AND j.state IN ('COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED')
ORDER BY j.number
FOR UPDATE OF j
