-- note: RUNNING stays RUNNING, with progress, checkpoint, log lines or a new payload
-- id text[]  token text[]  progress text[]  at timestamptz[]  checkpoint bytea[]  log text[]
-- payload bytea[], null where there is none; kept integer: log lines to keep per job
-- returns the position of each note whose lease is still the newest
WITH requested AS MATERIALIZED (
    SELECT n.token, n.progress, n.at, n.checkpoint, n.log, n.payload, n.position, b.number
    FROM unnest(
        %(id)s::text[], %(token)s::text[], %(progress)s::text[], %(at)s::timestamptz[],
        %(checkpoint)s::bytea[], %(log)s::text[], %(payload)s::bytea[]
    ) WITH ORDINALITY AS n (id, token, progress, at, checkpoint, log, payload, position)
    JOIN {schema}.body b ON b.id = n.id
), held AS MATERIALIZED (
    SELECT n.progress, n.at, n.checkpoint, n.log, n.payload, n.position, j.number, j.attempt,
        j.lease_version, j.lease_worker
    FROM requested n JOIN {schema}.job j ON j.number = n.number
    WHERE (j.state = 'RUNNING') IS TRUE AND j.lease_token = n.token
    ORDER BY n.number  -- see complete
    FOR NO KEY UPDATE OF j
), newest AS (
    SELECT number,
        (array_agg(progress ORDER BY position DESC) FILTER (WHERE progress IS NOT NULL))[1]
            AS progress,
        (array_agg(checkpoint ORDER BY position DESC) FILTER (WHERE checkpoint IS NOT NULL))[1]
            AS checkpoint
    FROM held WHERE progress IS NOT NULL OR checkpoint IS NOT NULL GROUP BY number
), written AS (
    UPDATE {schema}.job j
    SET progress = coalesce(newest.progress::json, j.progress),
        checkpoint = coalesce(newest.checkpoint, j.checkpoint)
    FROM newest WHERE j.number = newest.number
), rewritten AS (
    UPDATE {schema}.body b SET payload = given.payload
    FROM (
        SELECT DISTINCT ON (number) number, payload FROM held
        WHERE payload IS NOT NULL ORDER BY number, position DESC
    ) AS given
    WHERE b.number = given.number
), recorded AS (
    INSERT INTO {schema}.journal (job, at, attempt, lease_version, reason, worker, progress)
    SELECT number, at, attempt, lease_version, '', lease_worker, progress::json
    FROM held WHERE progress IS NOT NULL ORDER BY position
), line AS (
    SELECT number, log, position,
        row_number() OVER (PARTITION BY number ORDER BY position DESC) AS age
    FROM held WHERE log IS NOT NULL
), logged AS (
    INSERT INTO {schema}.log (job, line)
    SELECT number, log::json FROM line WHERE age <= %(kept)s::integer ORDER BY position
), trimmed AS (
    DELETE FROM {schema}.log l USING (
        SELECT added.number, (
            SELECT old.seq FROM {schema}.log old WHERE old.job = added.number
            ORDER BY old.seq DESC OFFSET greatest(0, %(kept)s::integer - added.lines) LIMIT 1
        ) AS seq
        FROM (SELECT number, count(*) AS lines FROM line GROUP BY number) AS added
    ) AS last
    WHERE l.job = last.number AND l.seq <= last.seq
)
SELECT position FROM held
