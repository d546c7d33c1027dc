-- add: new -> PENDING, SCHEDULED, DELAYED
-- One element per job in the arrays of the first block; the second holds the jobs' histories,
-- each edge with the position of its job. A job whose id is there already is left alone.
-- returns the number and id of each job that was written
WITH input AS MATERIALIZED (
    SELECT nextval('{schema}.place') AS number, given.*
    FROM unnest(
        %(id)s::text[], %(type)s::text[], %(queue)s::text[], %(payload)s::bytea[],
        %(policy)s::text[], %(lease_ttl)s::float8[], %(created_at)s::timestamptz[],
        %(tags)s::text[], %(correlation_id)s::text[], %(callback_url)s::text[],
        %(limit_key)s::text[], %(dedupe)s::text[], %(depends_on)s::text[],
        %(dependency_kind)s::text[], %(depth)s::integer[], %(spawned_by)s::text[],
        %(state)s::text[], %(revision)s::integer[], %(priority)s::integer[],
        %(max_attempts)s::integer[], %(held)s::boolean[], %(due_at)s::timestamptz[],
        %(scheduled_at)s::timestamptz[], %(expires_at)s::timestamptz[]
    ) WITH ORDINALITY AS given (
        id, type, queue, payload, policy, lease_ttl, created_at, tags, correlation_id,
        callback_url, limit_key, dedupe, depends_on, dependency_kind, depth, spawned_by, state,
        revision, priority, max_attempts, held, due_at, scheduled_at, expires_at, position
    )
), written AS (
    INSERT INTO {schema}.body (
        number, id, type, queue, payload, policy, lease_ttl, created_at, tags, correlation_id,
        callback_url, limit_key, dedupe, depends_on, dependency_kind, depth, spawned_by
    )
    SELECT number, id, type, queue, payload, policy::json, make_interval(secs => lease_ttl),
        created_at, tags::jsonb, correlation_id, callback_url, limit_key, dedupe::json,
        depends_on::text[], dependency_kind, depth, spawned_by
    FROM input
    ON CONFLICT (id) DO NOTHING
    RETURNING number, id
), born AS (
    INSERT INTO {schema}.job (
        number, place, xid, updated_at, due_at, scheduled_at, expires_at, state, revision,
        attempt, max_attempts, generation, priority, level, held, queue, type
    )
    SELECT number, CASE state WHEN 'SCHEDULED' THEN number END, pg_current_xact_id(), created_at,
        due_at, scheduled_at, expires_at, state::{schema}.state, revision, 0, max_attempts, 1,
        priority, least(greatest(priority, 0), 4), held, queue, type
    FROM input JOIN written USING (number)
), told AS (
    INSERT INTO {schema}.journal
        (job, at, attempt, lease_version, from_state, to_state, event, reason, worker)
    SELECT input.number, edge.at, 0, 0, edge.from_state::{schema}.state,
        edge.to_state::{schema}.state, edge.event, edge.reason, ''
    FROM unnest(
        %(edge_job)s::integer[], %(edge_at)s::timestamptz[], %(edge_from)s::text[],
        %(edge_to)s::text[], %(edge_event)s::text[], %(edge_reason)s::text[]
    ) WITH ORDINALITY AS edge (job, at, from_state, to_state, event, reason, turn)
    JOIN input ON input.position = edge.job
    JOIN written ON written.number = input.number
    ORDER BY edge.turn
), counted AS (
    INSERT INTO {schema}.delta (minute, queue, type, priority, name, bucket, count, top)
    SELECT NULL::integer, queue, type, priority, state, 0, count(*), 0
    FROM input JOIN written USING (number) GROUP BY queue, type, priority, state
    UNION ALL
    SELECT floor(date_part('epoch', created_at) / 60), queue, type, priority, 'submitted', 0,
        count(*), 0
    FROM input JOIN written USING (number) GROUP BY 1, queue, type, priority
)
SELECT number, id FROM written
