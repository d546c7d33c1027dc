-- age: SCHEDULED stays SCHEDULED, one level up for every full interval since then
-- limit integer: jobs read per queue and level, oldest first
-- now timestamptz, null for the server's own
-- returns each job that moved
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), aged AS MATERIALIZED (
    SELECT r.number, r.lifted
    FROM clock, {schema}.queue q CROSS JOIN generate_series(0, 4) AS l (level) CROSS JOIN LATERAL (
        SELECT j.number, least(4, greatest(0, j.priority - floor(
            extract(epoch FROM clock.now - j.scheduled_at) / extract(epoch FROM q.ageing)
        )))::smallint AS lifted
        FROM {schema}.job j
        WHERE j.state = 'SCHEDULED' AND j.queue = q.name AND j.level = l.level
          AND j.scheduled_at IS NOT NULL
        ORDER BY j.place LIMIT %(limit)s::integer
    ) AS r
    WHERE q.ageing IS NOT NULL AND r.lifted <> l.level
), locked AS MATERIALIZED (
    SELECT j.number, aged.lifted
    FROM aged JOIN {schema}.job j USING (number)
    WHERE j.state = 'SCHEDULED'
    FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE {schema}.job j SET level = locked.lifted
FROM locked WHERE j.number = locked.number AND j.state = 'SCHEDULED'
RETURNING j.number
