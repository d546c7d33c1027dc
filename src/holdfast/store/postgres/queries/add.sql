-- add: new -> PENDING, SCHEDULED, DELAYED
-- One element per job in every array; a value that all jobs share comes as one_... instead.
-- event and reason are those of the last transition: the submission, or the one that followed at
-- once, and then one row of the journal holds both. A job whose id exists is skipped; one whose id
-- another transaction is writing makes the statement fail, and the caller repeats it.
-- Looked up one by one, not joined: the jobs take their numbers in the order given.
WITH input AS MATERIALIZED (
    SELECT nextval('{schema}.place') AS number, given.id, given.payload, given.tags,
        given.correlation_id, given.callback_url, given.limit_key, given.dedupe, given.depends_on,
        given.dependency_kind, given.spawned_by, given.extra,
        coalesce(given.type, %(one_type)s::text) AS type,
        coalesce(given.queue, %(one_queue)s::text) AS queue,
        coalesce(given.policy, %(one_policy)s::text) AS policy,
        coalesce(given.lease_ttl, %(one_lease_ttl)s::float8) AS lease_ttl,
        coalesce(given.created_at, %(one_created_at)s::timestamptz) AS created_at,
        coalesce(given.depth, %(one_depth)s::integer) AS depth,
        coalesce(given.state, %(one_state)s::text) AS state,
        coalesce(given.revision, %(one_revision)s::integer) AS revision,
        coalesce(given.priority, %(one_priority)s::integer) AS priority,
        coalesce(given.max_attempts, %(one_max_attempts)s::integer) AS max_attempts,
        coalesce(given.held, %(one_held)s::boolean) AS held,
        coalesce(given.due_at, %(one_due_at)s::timestamptz) AS due_at,
        coalesce(given.scheduled_at, %(one_scheduled_at)s::timestamptz) AS scheduled_at,
        coalesce(given.expires_at, %(one_expires_at)s::timestamptz) AS expires_at,
        coalesce(given.event, %(one_event)s::text) AS event,
        coalesce(given.reason, %(one_reason)s::text) AS reason
    FROM unnest(
        %(id)s::text[], %(type)s::text[], %(queue)s::text[], %(payload)s::bytea[],
        %(policy)s::text[], %(lease_ttl)s::float8[], %(created_at)s::timestamptz[],
        %(tags)s::text[], %(correlation_id)s::text[], %(callback_url)s::text[],
        %(limit_key)s::text[], %(dedupe)s::text[], %(depends_on)s::text[],
        %(dependency_kind)s::text[], %(depth)s::integer[], %(spawned_by)s::text[],
        %(extra)s::bytea[],
        %(state)s::text[], %(revision)s::integer[], %(priority)s::integer[],
        %(max_attempts)s::integer[], %(held)s::boolean[], %(due_at)s::timestamptz[],
        %(scheduled_at)s::timestamptz[], %(expires_at)s::timestamptz[], %(event)s::text[],
        %(reason)s::text[]
    ) AS given (
        id, type, queue, payload, policy, lease_ttl, created_at, tags, correlation_id,
        callback_url, limit_key, dedupe, depends_on, dependency_kind, depth, spawned_by, extra,
        state, revision, priority, max_attempts, held, due_at, scheduled_at, expires_at, event, reason
    )
    WHERE (SELECT b.number FROM {schema}.body b WHERE b.id = given.id) IS NULL
), fixed AS (
    INSERT INTO {schema}.body (
        number, id, type, queue, payload, policy, lease_ttl, created_at, tags, correlation_id,
        callback_url, limit_key, dedupe, depends_on, dependency_kind, depth, spawned_by,
        extra
    )
    SELECT number, id, type, queue, payload, policy::json, make_interval(secs => lease_ttl),
        created_at, tags::jsonb, correlation_id, callback_url, limit_key, dedupe::json,
        depends_on::text[], dependency_kind, depth, spawned_by, extra
    FROM input
), moving AS (
    INSERT INTO {schema}.job (
        number, place, xid, updated_at, due_at, scheduled_at, expires_at, state, revision,
        attempt, max_attempts, generation, priority, level, held, queue, type
    )
    SELECT number, CASE state WHEN 'SCHEDULED' THEN number END, pg_current_xact_id(), created_at,
        due_at, scheduled_at, expires_at, state::{schema}.state, revision, 0, max_attempts, 1,
        priority, least(greatest(priority, 0), 4), held, queue, type
    FROM input
), recorded AS (
    INSERT INTO {schema}.journal
        (job, at, attempt, lease_version, to_state, event, reason, worker)
    SELECT number, created_at, 0, 0, state::{schema}.state, event, reason, '' FROM input
), kinds AS MATERIALIZED (
    SELECT floor(date_part('epoch', created_at) / 60) AS minute, queue, type, priority, state,
        count(*) AS count
    FROM input GROUP BY 1, queue, type, priority, state
)
INSERT INTO {schema}.delta (minute, queue, type, priority, name, bucket, count, top)
SELECT NULL::integer, queue, type, priority, state, 0, count, 0 FROM kinds
UNION ALL
SELECT minute, queue, type, priority, 'submitted', 0, count, 0 FROM kinds
