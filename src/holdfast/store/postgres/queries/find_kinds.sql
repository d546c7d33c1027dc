-- find_kinds: how many jobs there are by state and by the types of a search, from the counters
-- types, queues text[], priorities integer[], null where there is none
-- low, high text, plain boolean: the queues of a namespace
-- returns all jobs, those in the queues, and those in the queues with the priorities
SELECT state, named, sum(count)::bigint, coalesce(sum(count) FILTER (WHERE queued), 0)::bigint,
    coalesce(sum(count) FILTER (WHERE queued AND prioritised), 0)::bigint
FROM (
    SELECT state, count,
        CASE WHEN type = ANY (%(types)s::text[]) THEN type END AS named,
        %(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]) AS queued,
        %(priorities)s::integer[] IS NULL OR priority = ANY (%(priorities)s::integer[])
            AS prioritised
    FROM (
        SELECT queue, type, priority, state::text, count FROM {schema}.tally
        UNION ALL
        SELECT queue, type, priority, name, count FROM {schema}.delta WHERE minute IS NULL
    ) AS every
    WHERE queue >= %(low)s::text AND queue < %(high)s::text
        AND (NOT %(plain)s::boolean OR strpos(queue, '/') = 0)
) AS counted
GROUP BY state, named
