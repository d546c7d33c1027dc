-- ended: which of these jobs have ended
-- id text[]
SELECT b.id
FROM {schema}.body b JOIN {schema}.job j USING (number)
WHERE b.id = ANY (%(id)s::text[])
  AND j.state IN ('COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED')
