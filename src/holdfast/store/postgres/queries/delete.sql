-- delete: ended -> deleted, with everything that lives only as long as the job
-- number bigint[]: jobs whose rows this transaction has locked  kept integer: events still returned
-- returns the id of each job that was deleted
--
-- A separate statement after the locks: only then it sees a child that was added meanwhile.
WITH deleted AS (
    DELETE FROM {schema}.job j
    WHERE j.number = ANY (%(number)s::bigint[])
      AND NOT (j.awaited AND EXISTS (
          SELECT FROM {schema}.edge e JOIN {schema}.job c ON c.number = e.child
          WHERE e.parent = j.number
            AND c.state IN ('PENDING', 'SCHEDULED', 'DELAYED', 'RUNNING', 'RETRYING')))
      AND NOT EXISTS (SELECT FROM {schema}.tie t WHERE t.parent = j.number)
    RETURNING j.number, j.queue, j.type, j.priority, j.state, j.failure_category, j.failure_code
), bodies AS (
    DELETE FROM {schema}.body b USING deleted WHERE b.number = deleted.number
    RETURNING b.number, b.id, b.type, b.queue, b.dedupe
), keys AS (
    DELETE FROM {schema}.dedupe d USING bodies
    WHERE bodies.dedupe IS NOT NULL AND d.scope = bodies.dedupe ->> 'scope'
      AND d.key = bodies.dedupe ->> 'key' AND d.job_id = bodies.id
      AND d.expires_at IS NULL -- a key with a window outlives its job
), children AS (
    DELETE FROM {schema}.edge e USING deleted WHERE e.child = deleted.number
), parents AS (
    UPDATE {schema}.edge e SET gone = bodies.id
    FROM bodies WHERE e.parent = bodies.number AND NOT e.child = ANY (%(number)s::bigint[])
), pending AS (
    DELETE FROM {schema}.tie t USING deleted WHERE t.child = deleted.number
), waits AS (
    DELETE FROM {schema}.waiting w USING deleted WHERE w.child = deleted.number
), lines AS (
    DELETE FROM {schema}.log l USING deleted WHERE l.job = deleted.number
), horizon AS (
    SELECT coalesce((
        SELECT seq FROM {schema}.journal ORDER BY xid DESC, seq DESC LIMIT 1
    ), 0) - 2 * %(kept)s::bigint AS seq
), forgotten AS (
    DELETE FROM {schema}.journal t USING deleted, horizon
    WHERE t.job = deleted.number AND t.seq <= horizon.seq
), orphaned AS (
    UPDATE {schema}.journal t
    SET gone = json_build_object('id', bodies.id, 'type', bodies.type, 'queue', bodies.queue)
    FROM bodies, horizon WHERE t.job = bodies.number AND t.seq > horizon.seq
), counted AS (
    INSERT INTO {schema}.delta (minute, queue, type, priority, name, bucket, count, top)
    SELECT NULL::integer, queue, type, priority, state::text, 0, -count(*), 0
    FROM deleted GROUP BY queue, type, priority, state
), failures_counted AS (
    INSERT INTO {schema}.delta
        (minute, queue, type, priority, name, bucket, count, top, category, code)
    SELECT -1, queue, type, 0, state::text, 0, -count(*), 0, failure_category, failure_code
    FROM deleted WHERE failure_category IS NOT NULL
    GROUP BY queue, type, state, failure_category, failure_code
)
SELECT id FROM bodies
