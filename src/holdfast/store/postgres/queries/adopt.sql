-- adopt: write what add and swap leave out of adopted jobs
-- One element per job in the arrays of the first block; the second holds log lines, each with the
-- id of its job.
WITH given AS MATERIALIZED (
    SELECT b.number, g.progress, g.checkpoint, g.depends_on
    FROM unnest(
        %(id)s::text[], %(progress)s::text[], %(checkpoint)s::bytea[], %(depends_on)s::text[]
    ) AS g (id, progress, checkpoint, depends_on)
    JOIN {schema}.body b ON b.id = g.id
), written AS (
    UPDATE {schema}.job j SET progress = given.progress::json, checkpoint = given.checkpoint
    FROM given
    WHERE j.number = given.number AND (given.progress IS NOT NULL OR given.checkpoint IS NOT NULL)
), named AS (
    UPDATE {schema}.body b SET depends_on = given.depends_on::text[]
    FROM given WHERE b.number = given.number AND given.depends_on IS NOT NULL
)
INSERT INTO {schema}.log (job, line)
SELECT b.number, l.line::json
FROM unnest(%(line_job)s::text[], %(line)s::text[]) WITH ORDINALITY AS l (id, line, turn)
JOIN {schema}.body b ON b.id = l.id
ORDER BY l.turn
