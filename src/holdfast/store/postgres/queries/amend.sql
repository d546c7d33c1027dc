-- amend: any -> same
-- One value each, null where there is none; tags are JSON.
-- returns the job's number if it was written
--
-- Written only while the revision is as expected.
WITH locked AS MATERIALIZED (
    SELECT j.number, j.priority
    FROM {schema}.body b JOIN {schema}.job j ON j.number = b.number
    WHERE b.id = %(id)s::text
    FOR NO KEY UPDATE OF j
), written AS (
    UPDATE {schema}.job j
    SET revision = %(revision)s::integer, priority = %(priority)s::integer,
        due_at = %(due_at)s::timestamptz,
        level = CASE WHEN j.priority <> %(priority)s::integer
                     THEN least(greatest(%(priority)s::integer, 0), 4) ELSE j.level END
    FROM locked
    WHERE j.number = locked.number AND j.revision = %(was)s::integer
    RETURNING j.number, j.queue, j.type, j.state, j.priority, locked.priority AS left_priority
), amended AS (
    UPDATE {schema}.body b
    SET tags = %(tags)s::text::jsonb, correlation_id = %(correlation_id)s::text,
        callback_url = %(callback_url)s::text
    FROM written
    WHERE b.number = written.number
), counted AS (
    INSERT INTO {schema}.delta (minute, queue, type, priority, name, bucket, count, top)
    SELECT NULL::integer, queue, type, step.priority, state::text, 0, step.step, 0
    FROM written CROSS JOIN LATERAL (VALUES (left_priority, -1), (priority, 1))
        AS step (priority, step)
    WHERE left_priority <> written.priority
)
SELECT number FROM written
