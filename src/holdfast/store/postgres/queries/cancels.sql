-- cancels: requests to cancel these jobs
-- id text[]
SELECT b.id, j.cancel
FROM {schema}.body b JOIN {schema}.job j USING (number)
WHERE b.id = ANY (%(id)s::text[]) AND j.cancel IS NOT NULL
