-- dependents: waiting jobs on which a verdict may be due, with all they wait for
-- limit integer
WITH candidate AS (
    SELECT w.child
    FROM {schema}.waiting w
    JOIN {schema}.job j ON j.number = w.child
    JOIN {schema}.body b ON b.number = w.child
    WHERE (w.due OR w.open = 0) AND j.state = 'PENDING' AND NOT j.held
      AND (w.open = 0 OR w.eager
          OR (b.dependency_kind IS DISTINCT FROM 'AFTER_ALL' AND EXISTS (
              SELECT FROM {schema}.edge e
              WHERE e.child = w.child AND e.ended IS NOT NULL AND e.ended <> 'COMPLETED')))
    ORDER BY w.child
    LIMIT %(limit)s::integer
)
SELECT {columns}, coalesce(parents.ids, '{}'), coalesce(parents.states, '{}')
FROM candidate
JOIN {schema}.job j ON j.number = candidate.child
JOIN {schema}.body b ON b.number = candidate.child
CROSS JOIN LATERAL (
    SELECT array_agg(coalesce(pb.id, e.gone) ORDER BY e.seq) AS ids,
        array_agg(coalesce(e.ended, pj.state)::text ORDER BY e.seq) AS states
    FROM {schema}.edge e
    LEFT JOIN {schema}.body pb ON pb.number = e.parent
    LEFT JOIN {schema}.job pj ON pj.number = e.parent
    WHERE e.child = candidate.child
) AS parents
ORDER BY candidate.child
