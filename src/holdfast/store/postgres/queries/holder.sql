-- holder: lock a running job under its lease, to write on its behalf
-- id text  token text
-- returns the job if the lease is the newest
SELECT {columns}
FROM {schema}.body b JOIN {schema}.job j USING (number)
WHERE b.id = %(id)s AND j.state = 'RUNNING' AND j.lease_token = %(token)s
FOR NO KEY UPDATE OF j
