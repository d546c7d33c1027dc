-- patience: wait for no lock longer than this, until the transaction ends
-- longest text, null for as long as the session usually does
SELECT set_config('lock_timeout', %(longest)s::text, true)
