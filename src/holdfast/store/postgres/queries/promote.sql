-- promote: DELAYED, RETRYING -> SCHEDULED
-- limit integer  now timestamptz, null for the server's own
-- returns the queue and type of each job that became ready
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), found AS MATERIALIZED (
    SELECT r.number, r.due_at, r.state
    FROM {schema}.job r
    WHERE r.state IN ('DELAYED', 'RETRYING') AND r.due_at <= (SELECT now FROM clock)
      AND r.xid < pg_current_xact_id()
    ORDER BY r.due_at, r.number
    LIMIT %(limit)s::integer
    FOR NO KEY UPDATE SKIP LOCKED
), placed AS MATERIALIZED (
    SELECT number, state, nextval('{schema}.place') AS place
    FROM (SELECT number, state FROM found ORDER BY due_at, number) AS ordered
), moved AS (
    UPDATE {schema}.job j
    SET state = 'SCHEDULED', revision = j.revision + 1,
        scheduled_at = greatest(clock.now, j.updated_at),
        updated_at = greatest(clock.now, j.updated_at), place = placed.place,
        level = least(greatest(j.priority, 0), 4), xid = pg_current_xact_id()
    FROM placed, clock
    WHERE j.number = placed.number
    RETURNING j.number, j.queue, j.type, j.priority, j.attempt, j.lease_version,
        coalesce(j.lease_worker, '') AS worker, placed.place, placed.state AS was,
        j.updated_at AS now
), recorded AS (
    INSERT INTO {schema}.journal
        (job, at, attempt, lease_version, from_state, to_state, event, reason, worker)
    SELECT number, now, attempt, lease_version, was, 'SCHEDULED', 'due', 'time reached', worker
    FROM moved ORDER BY place
), counted AS (
    INSERT INTO {schema}.delta (minute, queue, type, priority, name, bucket, count, top)
    SELECT NULL::integer, queue, type, priority, was::text, 0, -count(*), 0
    FROM moved GROUP BY queue, type, priority, was
    UNION ALL
    SELECT NULL::integer, queue, type, priority, 'SCHEDULED', 0, count(*), 0
    FROM moved GROUP BY queue, type, priority
)
SELECT queue, type FROM moved
