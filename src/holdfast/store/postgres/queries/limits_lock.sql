-- limits_lock: run claims under the same limit one after the other: two would find one last slot
-- scopes text[]: limits that could apply to the jobs; those that are set are locked, in an order, so
-- that no two claims wait for each other  types text[] or null, as in candidates
-- idle text: milliseconds after which the server ends the transaction of a client that froze here
-- returns the limits that it locked
SELECT array_agg(scope) FILTER (WHERE locks IS NOT NULL),
    set_config('idle_in_transaction_session_timeout', %(idle)s::text, true)
FROM (
    SELECT scope, pg_advisory_xact_lock(hashtextextended('holdfast limit {schema} ' || scope, 0))
        AS locks
    FROM (
        SELECT scope FROM {schema}.rule
        WHERE scope = ANY (%(scopes)s::text[])
           OR (%(types)s::text[] IS NULL AND NOT starts_with(scope, 'queue:'))
        ORDER BY scope OFFSET 0
    ) AS applies
    OFFSET 0
) AS locked
