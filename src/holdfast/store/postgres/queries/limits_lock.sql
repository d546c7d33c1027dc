-- limits_lock: run claims under the same limit one after the other: two would find one last slot
-- scopes text[]: the limits that apply, in order, so that no two claims wait for each other
-- now timestamptz, null for the server's own
-- returns the time
SELECT coalesce(%(now)s::timestamptz, clock_timestamp())
FROM (
    SELECT count(pg_advisory_xact_lock(hashtextextended('holdfast limit {schema} ' || scope, 0)))
    FROM unnest(%(scopes)s::text[]) AS applies (scope)
) AS locked
