-- complete: RUNNING -> COMPLETED, the usual end of a job
-- number bigint[], null where it is unknown  id text[], null where the number is known
-- result bytea[]
-- was integer[], token text[], at timestamptz[]: null where they equal usual_was integer,
-- usual_token text, usual_at timestamptz
-- alone boolean: the whole call is this statement
-- returns the positions of the jobs that were written, null if that is all of them
--
-- Does what swap does, for outcomes that change nothing else. Written only while revision and token
-- are as expected, so the job is running. The statement does not test the state: the planner would
-- start from the few running jobs it knows of, and compare each with every outcome. A job that
-- others wait for is left to swap, which updates them; alone, nothing is written when there is one
-- (or only the rest, if a job becomes one just now).
--
-- A handler may have begun its transaction long ago, and have reported progress in others since.
-- Its end is recorded under the newest transaction there is: no reader passes an open transaction,
-- so none can have passed this one.
WITH stamp AS MATERIALIZED (
    SELECT greatest(pg_current_xact_id(),
        (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)::text::xid8) AS xid
), answer AS MATERIALIZED (
    SELECT coalesce(c.number, (SELECT b.number FROM {schema}.body b WHERE b.id = c.id)) AS number,
        coalesce(c.was, %(usual_was)s::integer) AS was,
        coalesce(c.token, %(usual_token)s::text) AS token,
        coalesce(c.at, %(usual_at)s::timestamptz) AS at, c.result, c.position
    FROM unnest(
        %(number)s::bigint[], %(id)s::text[], %(was)s::integer[], %(token)s::text[],
        %(at)s::timestamptz[], %(result)s::bytea[]
    ) WITH ORDINALITY AS c (number, id, was, token, at, result, position)
    ORDER BY 1  -- the order in which every statement locks jobs
), blocked AS MATERIALIZED (
    SELECT %(alone)s AND EXISTS (
        SELECT FROM answer a JOIN {schema}.job j ON j.number = a.number WHERE j.awaited
    ) AS yes
), done AS (
    UPDATE {schema}.job j
    SET state = 'COMPLETED', revision = j.revision + 1, updated_at = a.at, finished_at = a.at,
        result = a.result, lease_until = NULL, failure = NULL, failed_at = NULL,
        failure_category = NULL, failure_code = NULL, xid = (SELECT xid FROM stamp)
    FROM answer a
    WHERE j.number = a.number AND j.revision = a.was
      AND j.lease_token = a.token AND NOT j.awaited AND NOT (SELECT yes FROM blocked)
    RETURNING a.position, j.number, j.queue, j.type, j.priority, j.attempt, j.lease_version,
        j.lease_worker, j.started_at, j.finished_at
), recorded AS (
    INSERT INTO {schema}.journal
        (xid, job, at, attempt, lease_version, from_state, to_state, event, reason, worker)
    SELECT (SELECT xid FROM stamp), number, finished_at, attempt, lease_version, 'RUNNING',
        'COMPLETED', 'complete', 'handler returned', lease_worker
    FROM done ORDER BY position
), ran AS MATERIALIZED (
    SELECT floor(date_part('epoch', finished_at) / 60) AS minute, queue, type, priority,
        count(*) AS count, greatest(0, max(seconds)) AS top,
        greatest(0, ceil(ln(greatest(seconds, 1e-6) / 1e-6) / ln(2::float8) * 4 - 1e-9)) AS bucket
    FROM (
        SELECT finished_at, queue, type, priority,
            date_part('epoch', finished_at - started_at) AS seconds
        FROM done
    ) AS run GROUP BY minute, queue, type, priority, bucket
), counted AS (
    INSERT INTO {schema}.delta (minute, queue, type, priority, name, bucket, count, top)
    SELECT CASE WHEN step.is_measure THEN minute END, queue, type, priority, step.name, 0,
        step.sign * sum(count), 0
    FROM ran, (VALUES ('RUNNING', -1, false), ('COMPLETED', 1, false), ('completed', 1, true))
        AS step (name, sign, is_measure)
    GROUP BY minute, queue, type, priority, step.name, step.sign, step.is_measure
    UNION ALL
    SELECT minute, queue, type, priority, 'run', bucket, count, top FROM ran
)
SELECT CASE WHEN count(*) < (SELECT count(*) FROM answer)
    THEN coalesce(array_agg(position), '{}') END
FROM done
