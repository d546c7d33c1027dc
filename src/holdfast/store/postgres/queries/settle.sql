-- settle: prepare a handler's session for the store's statements, for the rest of its transaction
-- timeout text: the limit of a statement, a wait for a lock and an idle wait, in milliseconds
-- returns the mark of the transaction, nothing if that one has ended; and the role
SELECT current_setting('holdfast.lease', true), current_setting('role'),
    set_config('timezone', 'UTC', true),
    set_config('statement_timeout', %(timeout)s::text, true),
    set_config('lock_timeout', %(timeout)s::text, true),
    set_config('idle_in_transaction_session_timeout', %(timeout)s::text, true),
    set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('plan_cache_mode', 'force_generic_plan', true),
    set_config('jit', 'off', true)
