-- find_total: how many jobs are of these kinds, from the counters
-- types, queues, states text[], priorities integer[], null where there is none
SELECT coalesce(sum(count), 0)::bigint
FROM (
    SELECT queue, type, priority, state::text, count FROM {schema}.tally
    UNION ALL
    SELECT queue, type, priority, name, count FROM {schema}.delta WHERE minute IS NULL
) AS every
WHERE (%(types)s::text[] IS NULL OR type = ANY (%(types)s::text[]))
  AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
  AND (%(states)s::text[] IS NULL OR state = ANY (%(states)s::text[]))
  AND (%(priorities)s::integer[] IS NULL OR priority = ANY (%(priorities)s::integer[]))
