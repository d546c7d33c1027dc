-- limits_lock: run claims under the same limit one after the other: two would find one last slot
-- scopes text[]: the limits that apply, in order, so that no two claims wait for each other
-- now timestamptz, null for the server's own
-- idle text: milliseconds after which the server ends the transaction of a client that froze here
-- returns the time
SELECT coalesce(%(now)s::timestamptz, clock_timestamp()),
    set_config('idle_in_transaction_session_timeout', %(idle)s::text, true)
FROM (
    SELECT count(pg_advisory_xact_lock(hashtextextended('holdfast limit {schema} ' || scope, 0)))
    FROM unnest(%(scopes)s::text[]) AS applies (scope)
) AS locked
