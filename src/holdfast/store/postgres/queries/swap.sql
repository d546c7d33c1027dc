-- swap: any -> any (the lifecycle has decided the transitions)
-- One element per change in every array; trail is a JSON list of its transitions.
-- parents boolean: also end jobs that others wait for; the caller then runs end_edges. Without it
-- nothing is written when there is such a job (or only the rest, if one becomes so just now)
-- measured boolean: count how long the attempts took
-- returns position, number and state of each written change, and whether others wait for the job
--
-- Written only while revision, and where given token and end of the lease, are as expected.
-- The stamp is that of complete.
WITH stamp AS MATERIALIZED (
    SELECT greatest(pg_current_xact_id(),
        (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)::text::xid8) AS xid
), change AS MATERIALIZED (
    SELECT given.*, CASE WHEN given.enters THEN nextval('{schema}.place') END AS place
    FROM unnest(
        %(id)s::text[], %(was)s::integer[], %(token)s::text[], %(until)s::timestamptz[],
        %(enters)s::boolean[], %(moved)s::boolean[], %(state)s::text[], %(revision)s::integer[],
        %(priority)s::integer[], %(max_attempts)s::integer[], %(attempt)s::integer[],
        %(generation)s::integer[], %(held)s::boolean[], %(updated_at)s::timestamptz[],
        %(due_at)s::timestamptz[], %(scheduled_at)s::timestamptz[], %(started_at)s::timestamptz[],
        %(finished_at)s::timestamptz[], %(expires_at)s::timestamptz[], %(lease_token)s::text[],
        %(lease_version)s::integer[], %(lease_worker)s::text[], %(lease_until)s::timestamptz[],
        %(cancel)s::text[], %(failure)s::text[], %(failed_at)s::timestamptz[],
        %(failure_category)s::text[], %(failure_code)s::text[], %(result)s::bytea[],
        %(was_state)s::text[], %(was_priority)s::integer[], %(was_category)s::text[],
        %(was_code)s::text[], %(trail)s::text[]
    ) WITH ORDINALITY AS given (
        id, was, token, until, enters, moved, state, revision, priority, max_attempts, attempt,
        generation, held, updated_at, due_at, scheduled_at, started_at, finished_at, expires_at,
        lease_token, lease_version, lease_worker, lease_until, cancel, failure, failed_at,
        failure_category, failure_code, result, was_state, was_priority, was_category, was_code,
        trail, position
    )
), aim AS MATERIALIZED (
    SELECT c.position, b.number, c.finished_at IS NOT NULL AS ends
    FROM change c JOIN {schema}.body b ON b.id = c.id
), blocked AS MATERIALIZED (
    SELECT NOT %(parents)s AND EXISTS (
        SELECT FROM aim JOIN {schema}.job j USING (number) WHERE aim.ends AND j.awaited
    ) AS yes
), locked AS MATERIALIZED (
    SELECT aim.position, j.number
    FROM aim JOIN {schema}.job j USING (number)
    WHERE NOT (SELECT yes FROM blocked)
    ORDER BY aim.number  -- see complete
    FOR NO KEY UPDATE OF j
), written AS (
    UPDATE {schema}.job j
    SET state = c.state::{schema}.state, revision = c.revision, priority = c.priority,
        level = CASE WHEN c.moved THEN least(greatest(c.priority, 0), 4) ELSE j.level END,
        place = CASE WHEN c.moved THEN c.place ELSE j.place END,
        xid = CASE WHEN c.moved THEN (SELECT xid FROM stamp) ELSE j.xid END,
        max_attempts = c.max_attempts, attempt = c.attempt, generation = c.generation,
        held = c.held, updated_at = c.updated_at, due_at = c.due_at,
        scheduled_at = c.scheduled_at, started_at = c.started_at, finished_at = c.finished_at,
        expires_at = c.expires_at, lease_token = c.lease_token, lease_version = c.lease_version,
        lease_worker = c.lease_worker, lease_until = c.lease_until, cancel = c.cancel::json,
        failure = c.failure::json, failed_at = c.failed_at,
        failure_category = c.failure_category, failure_code = c.failure_code, result = c.result
    FROM locked JOIN change c USING (position)
    WHERE j.number = locked.number AND j.revision = c.was
      AND (c.token IS NULL OR j.lease_token = c.token)
      AND (c.until IS NULL OR j.lease_until = c.until)
      AND (%(parents)s OR NOT (j.awaited AND c.finished_at IS NOT NULL))
    RETURNING c.position, j.number, j.queue, j.type, j.state, j.awaited, j.priority, j.started_at,
        j.failure_category, j.failure_code, c.was_state, c.was_priority, c.was_category,
        c.was_code, c.trail
), edge AS (
    SELECT written.number, written.queue, written.type, written.position, given.*,
        CASE WHEN %(measured)s AND given.from_state = 'RUNNING'
             THEN date_part('epoch', given.at - written.started_at) END AS ran,
        CASE WHEN given.turn = 1 THEN written.was_priority ELSE written.priority END
            AS left_priority,
        written.priority
    FROM written CROSS JOIN LATERAL ROWS FROM (
        json_to_recordset(written.trail::json) AS (
            at timestamptz, from_state text, to_state text, event text, reason text,
            attempt integer, lease_version integer, worker text, failure json
        )
    ) WITH ORDINALITY AS given (
        at, from_state, to_state, event, reason, attempt, lease_version, worker, failure, turn
    )
), recorded AS (
    INSERT INTO {schema}.journal (xid, job, at, attempt, lease_version, from_state, to_state,
        event, reason, worker, failure)
    SELECT (SELECT xid FROM stamp), number, at, attempt, lease_version,
        from_state::{schema}.state, to_state::{schema}.state, event, reason, worker, failure
    FROM edge ORDER BY position, turn
), counted AS (
    INSERT INTO {schema}.delta (minute, queue, type, priority, name, bucket, count, top)
    SELECT NULL::integer, queue, type, priority, name, 0, sum(step), 0
    FROM (
        SELECT queue, type, left_priority AS priority, from_state AS name, -1 AS step FROM edge
        UNION ALL SELECT queue, type, priority, to_state, 1 FROM edge
    ) AS step GROUP BY queue, type, priority, name HAVING sum(step) <> 0
    UNION ALL
    SELECT floor(date_part('epoch', at) / 60), queue, type, priority, measure, bucket, count(*),
        greatest(0, max(seconds))
    FROM (
        SELECT at, queue, type, priority, 'run' AS measure, ran AS seconds,
            greatest(0, ceil(ln(greatest(ran, 1e-6) / 1e-6) / ln(2::float8) * 4 - 1e-9)) AS bucket
        FROM edge WHERE ran IS NOT NULL
        UNION ALL
        SELECT at, queue, type, priority,
            CASE to_state WHEN 'RETRYING' THEN 'retried' ELSE lower(to_state) END, 0, 0
        FROM edge
        WHERE to_state IN ('COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED', 'RETRYING')
    ) AS measured GROUP BY 1, queue, type, priority, measure, bucket
), failures_counted AS (
    INSERT INTO {schema}.delta
        (minute, queue, type, priority, name, bucket, count, top, category, code)
    SELECT -1, queue, type, 0, state, 0, sum(step), 0, category, code
    FROM (
        SELECT queue, type, was_state AS state, was_category AS category, was_code AS code,
            -1 AS step
        FROM written WHERE was_category IS NOT NULL
        UNION ALL
        SELECT queue, type, state::text, failure_category, failure_code, 1
        FROM written WHERE failure_category IS NOT NULL
    ) AS step
    WHERE state IN ('FAILED', 'DEAD_LETTER', 'CANCELLED')
    GROUP BY queue, type, state, category, code HAVING sum(step) <> 0
)
SELECT position, number, state::text, awaited FROM written
