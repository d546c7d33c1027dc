-- failure_totals: how many ended jobs failed, by category, by code and by type, from the counters
-- states text[]  categories, types, queues text[], code text, null where there is none
SELECT grouping(category, code, type), category, code, type, sum(count)::bigint
FROM (
    SELECT state::text, queue, type, category, code, count FROM {schema}.toll
    UNION ALL
    SELECT name, queue, type, category, code, count FROM {schema}.delta WHERE minute = -1
) AS every
WHERE state = ANY (%(states)s::text[])
  AND (%(categories)s::text[] IS NULL OR category = ANY (%(categories)s::text[]))
  AND (%(types)s::text[] IS NULL OR type = ANY (%(types)s::text[]))
  AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
  AND queue >= %(low)s::text AND queue < %(high)s::text
  AND (NOT %(plain)s::boolean OR strpos(queue, '/') = 0)
  AND (%(code)s::text IS NULL OR code = %(code)s::text)
GROUP BY GROUPING SETS ((category), (code), (type))
HAVING sum(count) <> 0
