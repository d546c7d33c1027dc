-- prunable: ended jobs older than allowed on which no live job depends, oldest first
-- state text[]  before timestamptz[], one per state  limit integer
SELECT old.number
FROM unnest(%(state)s::text[], %(before)s::timestamptz[]) AS rule (state, before)
CROSS JOIN LATERAL (
    SELECT j.number, j.finished_at
    FROM {schema}.job j
    WHERE j.state = rule.state::{schema}.state AND j.finished_at <= rule.before
      AND NOT (j.awaited AND EXISTS (
          SELECT FROM {schema}.edge e JOIN {schema}.job c ON c.number = e.child
          WHERE e.parent = j.number
            AND c.state IN ('PENDING', 'SCHEDULED', 'DELAYED', 'RUNNING', 'RETRYING')))
      AND NOT EXISTS (SELECT FROM {schema}.tie t WHERE t.parent = j.number)
    ORDER BY j.finished_at, j.number
    LIMIT %(limit)s::integer
    FOR UPDATE OF j SKIP LOCKED
) AS old
ORDER BY old.finished_at, old.number
LIMIT %(limit)s::integer
