-- overdue: running jobs whose lease has ended, live jobs whose lifetime is over
-- most integer  now timestamptz, null for the server's own
SELECT {columns}
FROM {schema}.job j JOIN {schema}.body b USING (number)
WHERE j.state IN ('PENDING', 'SCHEDULED', 'DELAYED', 'RUNNING', 'RETRYING')
  AND (CASE WHEN j.state = 'RUNNING' THEN least(j.lease_until, j.expires_at)
            ELSE j.expires_at END) <= coalesce(%(now)s::timestamptz, clock_timestamp())
ORDER BY (CASE WHEN j.state = 'RUNNING' THEN least(j.lease_until, j.expires_at)
               ELSE j.expires_at END), j.number
LIMIT %(most)s::integer
