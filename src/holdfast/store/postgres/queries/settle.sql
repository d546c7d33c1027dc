-- settle: make a handler's session fit for our statements, for what is left of its transaction
-- limit text: the longest a statement, a wait for a lock or one for us may take, in milliseconds
-- returns what the transaction was marked with, nothing if that one has ended; and the role
SELECT current_setting('holdfast.lease', true), current_setting('role'),
    set_config('timezone', 'UTC', true),
    set_config('statement_timeout', %(limit)s::text, true),
    set_config('lock_timeout', %(limit)s::text, true),
    set_config('idle_in_transaction_session_timeout', %(limit)s::text, true),
    set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('plan_cache_mode', 'force_generic_plan', true),
    set_config('jit', 'off', true)
