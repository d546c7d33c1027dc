-- ready: the next ready jobs of a queue, for a claim under limits to choose from
-- queue text  types text[] or null  after_level integer  after_place bigint  limit integer
-- full_types text[], full_keys text[] as type:key: limits without room
-- Skips jobs that are younger than this transaction, see claim.
SELECT r.number, r.type, b.limit_key, r.level, r.place
FROM {schema}.job r JOIN {schema}.body b USING (number)
WHERE r.state = 'SCHEDULED' AND r.queue = %(queue)s
  AND (r.level, r.place) > (%(after_level)s::smallint, %(after_place)s::bigint)
  AND (%(types)s::text[] IS NULL OR r.type = ANY (%(types)s::text[]))
  AND NOT r.type = ANY (%(full_types)s::text[])
  AND (b.limit_key IS NULL OR NOT r.type || ':' || b.limit_key = ANY (%(full_keys)s::text[]))
  AND r.xid < pg_current_xact_id()
ORDER BY r.level, r.place
LIMIT %(limit)s::integer
FOR NO KEY UPDATE OF r SKIP LOCKED
