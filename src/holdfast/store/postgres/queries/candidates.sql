-- candidates: the ready jobs that a claim may take, in the order of service; part of claim and ready
-- queues text[], levels integer[], starts bigint[]: where to look, in this order, and from which
-- place on  types text[] or null  limit integer
-- scopes text[]: limits that could apply to the jobs
-- full_queues, full_types text[], full_keys text[] as type:key: limits without room, whose jobs are
-- passed over  full_keyed text[]: the types of these keys
-- chosen bigint[]: look for none, these are known; or null
--
-- The state is a literal: a generic plan would not use the partial index otherwise. Jobs are found
-- queue by queue, level by level, in index order. They are locked, so each is still where it was
-- found. A row that changed since may carry a younger transaction than this one: it is left for the
-- next claim, so that the journal's order by transaction is the order of events.
-- Without limits the arrays are empty, not null: null AND EXISTS would read the body of every job.
limited AS MATERIALIZED (
    SELECT coalesce(array_agg(name) FILTER (WHERE kind = 'queue'), '{}') AS queues,
        coalesce(array_agg(name) FILTER (WHERE kind = 'task'), '{}') AS types,
        coalesce(array_agg(name) FILTER (WHERE kind = 'key'), '{}') AS keyed
    FROM (
        SELECT split_part(scope, ':', 1) AS kind, substr(scope, strpos(scope, ':') + 1) AS name
        FROM {schema}.rule
        WHERE scope = ANY (%(scopes)s::text[])
           OR (%(types)s::text[] IS NULL AND NOT starts_with(scope, 'queue:'))
    ) AS applies
), turn AS MATERIALIZED (
    SELECT requested.queue, requested.level, requested.start
    FROM unnest(%(queues)s::text[], %(levels)s::integer[], %(starts)s::bigint[])
        WITH ORDINALITY AS requested (queue, level, start, turn)
    WHERE NOT EXISTS (SELECT FROM {schema}.queue q WHERE q.name = requested.queue AND q.paused)
      AND NOT requested.queue = ANY (%(full_queues)s::text[]) AND %(chosen)s::bigint[] IS NULL
    ORDER BY requested.turn
), found AS MATERIALIZED (
    SELECT ready.*, row_number() OVER () AS turn
    FROM (
        SELECT ready.ctid, ready.number, ready.queue, ready.type,
            ready.queue = ANY ((SELECT queues FROM limited)::text[])
            OR ready.type = ANY ((SELECT types FROM limited)::text[])
            OR (ready.type = ANY ((SELECT keyed FROM limited)::text[]) AND EXISTS (
                SELECT FROM {schema}.body b
                WHERE b.number = ready.number AND b.limit_key IS NOT NULL)) AS is_limited
        FROM turn CROSS JOIN LATERAL (
            SELECT r.ctid, r.number, r.queue, r.type
            FROM {schema}.job r
            WHERE r.state = 'SCHEDULED' AND r.queue = turn.queue AND r.level = turn.level
              AND r.place >= turn.start
              AND (%(types)s::text[] IS NULL OR r.type = ANY (%(types)s::text[]))
              AND NOT r.type = ANY (%(full_types)s::text[])
              AND NOT (r.type = ANY (%(full_keyed)s::text[]) AND EXISTS (
                  SELECT FROM {schema}.body b
                  WHERE b.number = r.number
                    AND r.type || ':' || b.limit_key = ANY (%(full_keys)s::text[])))
              AND r.xid < pg_current_xact_id()
            ORDER BY r.place
            LIMIT %(limit)s::integer
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS ready
        LIMIT %(limit)s::integer
    ) AS ready
)
