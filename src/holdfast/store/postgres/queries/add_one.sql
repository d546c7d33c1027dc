-- add_one: like add, for a single job without a key, dependencies or spawner
-- One value each, null where there is none; policy and tags are JSON.
--
-- Most submissions have one job. Without arrays to unpack and rows to count, the server takes two
-- thirds of the time.
WITH fixed AS (
    INSERT INTO {schema}.body (
        number, id, type, queue, payload, policy, lease_ttl, created_at, tags, correlation_id,
        callback_url, limit_key, dependency_kind, depth, extra
    )
    SELECT nextval('{schema}.place'), %(id)s::text, %(type)s::text, %(queue)s::text,
        %(payload)s::bytea, %(policy)s::text::json, make_interval(secs => %(lease_ttl)s::float8),
        %(created_at)s::timestamptz, %(tags)s::text::jsonb, %(correlation_id)s::text,
        %(callback_url)s::text, %(limit_key)s::text, %(dependency_kind)s::text,
        %(depth)s::integer, %(extra)s::bytea
    ON CONFLICT (id) DO NOTHING
    RETURNING number
), moving AS (
    INSERT INTO {schema}.job (
        number, place, xid, updated_at, due_at, scheduled_at, expires_at, state, revision,
        attempt, max_attempts, generation, priority, level, held, queue, type
    )
    SELECT number, CASE %(state)s::text WHEN 'SCHEDULED' THEN number END, pg_current_xact_id(),
        %(created_at)s::timestamptz, %(due_at)s::timestamptz, %(scheduled_at)s::timestamptz,
        %(expires_at)s::timestamptz, %(state)s::text::{schema}.state, %(revision)s::integer, 0,
        %(max_attempts)s::integer, 1, %(priority)s::integer,
        least(greatest(%(priority)s::integer, 0), 4), %(held)s::boolean, %(queue)s::text,
        %(type)s::text
    FROM fixed
), recorded AS (
    INSERT INTO {schema}.journal
        (job, at, attempt, lease_version, to_state, event, reason, worker)
    SELECT number, %(created_at)s::timestamptz, 0, 0, %(state)s::text::{schema}.state,
        %(event)s::text, %(reason)s::text, ''
    FROM fixed
)
INSERT INTO {schema}.delta (minute, queue, type, priority, name, bucket, count, top)
SELECT step.minute, %(queue)s::text, %(type)s::text, %(priority)s::integer, step.name, 0, 1, 0
FROM fixed, (VALUES
    (NULL::float8, %(state)s::text),
    (floor(date_part('epoch', %(created_at)s::timestamptz) / 60), 'submitted')
) AS step (minute, name)
