-- claim: SCHEDULED -> RUNNING
-- The parameters are those of candidates, and:  token text  worker text
-- chosen bigint[]: claim just these, because the limits have room for them; or null: claim the
-- first jobs, up to one to which a limit applies
-- now timestamptz, null for the server's own
-- returns what is new or may differ in each job: the caller knows the rest. Values that jobs of one
-- claim nearly always share come as one ROW, so that it is decoded once. A row of nulls: it stopped
-- at a job to which a limit applies
--
-- One statement, no transaction around it: a client that freezes locks no row.
-- The jobs found are gathered in an array: the planner takes an unknown limit for a tenth of the
-- table and would join the whole table to them.
-- The history of a job goes on from its newest time if that is a little ahead, by the estimate of
-- another process. A time from clock.set on was written before the clock was set back.
WITH clock AS MATERIALIZED (
    SELECT now, now + interval '2 seconds' AS set
    FROM coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), {candidates}, stop AS MATERIALIZED (
    SELECT min(turn) AS turn FROM found WHERE is_limited
), taken AS (
    UPDATE {schema}.job j
    SET state = 'RUNNING', revision = j.revision + 1, attempt = j.attempt + 1,
        lease_version = j.lease_version + 1, lease_token = %(token)s::text,
        lease_worker = %(worker)s::text,
        lease_until = clock.now + b.lease_ttl, started_at = CASE
            WHEN j.updated_at < clock.set THEN greatest(clock.now, j.updated_at) ELSE clock.now END,
        updated_at = CASE
            WHEN j.updated_at < clock.set THEN greatest(clock.now, j.updated_at) ELSE clock.now END,
        xid = pg_current_xact_id()
    FROM clock, unnest(CASE WHEN %(chosen)s::bigint[] IS NULL THEN ARRAY(
        SELECT found.ctid FROM found, stop WHERE found.turn < stop.turn OR stop.turn IS NULL
    ) ELSE ARRAY(
        SELECT (SELECT c.ctid FROM {schema}.job c WHERE c.number = one.number)
        FROM unnest(%(chosen)s::bigint[]) AS one (number)
    ) END) WITH ORDINALITY AS served (ctid, turn), {schema}.body b
    WHERE j.ctid = served.ctid AND b.number = j.number
    RETURNING served.turn, j.number, j.level, j.place, b.id, b.payload, b.created_at,
        j.scheduled_at, j.expires_at,
        j.queue, j.type, j.priority, j.updated_at, j.attempt, j.lease_version, j.lease_until,
        j.revision, j.max_attempts, j.generation, j.held, b.policy, b.depth, b.tags,
        b.correlation_id, b.callback_url, b.limit_key, b.dedupe, b.depends_on, b.dependency_kind,
        b.spawned_by, b.extra, j.due_at, j.finished_at, j.cancel, j.failure, j.result, j.progress,
        j.checkpoint
), recorded AS (
    INSERT INTO {schema}.journal
        (job, at, attempt, lease_version, from_state, to_state, event, reason, worker)
    SELECT number, updated_at, attempt, lease_version, 'SCHEDULED', 'RUNNING', 'claim', 'claimed',
        %(worker)s::text
    FROM taken ORDER BY turn
), waited AS MATERIALIZED (
    SELECT queue, type, priority, count(*) AS count, count(seconds) AS timed,
        greatest(0, max(seconds)) AS top,
        greatest(0, ceil(ln(greatest(seconds, 1e-6) / 1e-6) / ln(2::float8) * 4 - 1e-9)) AS bucket
    FROM (
        SELECT queue, type, priority, date_part('epoch', updated_at - scheduled_at) AS seconds
        FROM taken
    ) AS wait GROUP BY queue, type, priority, bucket
), counted AS (
    INSERT INTO {schema}.delta (minute, queue, type, priority, name, bucket, count, top)
    SELECT NULL::integer, queue, type, priority, step.state, 0, step.sign * sum(count), 0
    FROM waited, (VALUES ('SCHEDULED', -1), ('RUNNING', 1)) AS step (state, sign)
    GROUP BY queue, type, priority, step.state, step.sign
    UNION ALL
    SELECT floor(date_part('epoch', clock.now) / 60), queue, type, priority, 'wait', bucket,
        timed, top
    FROM waited, clock WHERE timed > 0
)
SELECT turn, number, place, id, payload, timestamptz_send(created_at),
    timestamptz_send(scheduled_at), timestamptz_send(expires_at),
    ROW(queue, level, type, policy, priority, updated_at, attempt, lease_version, lease_until,
        revision, max_attempts, generation, held, depth),
    tags, correlation_id, callback_url, limit_key, dedupe, depends_on, dependency_kind, spawned_by,
    extra, due_at, finished_at, cancel, failure, result, progress, checkpoint
FROM taken FULL JOIN (SELECT FROM stop WHERE turn IS NOT NULL) AS stopped ON false
