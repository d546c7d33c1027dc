-- lock_timeout: limit the wait for a lock until the transaction ends
-- timeout text, null for the session's usual one
SELECT set_config('lock_timeout', %(timeout)s::text, true)
