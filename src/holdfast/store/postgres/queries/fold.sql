-- fold: add what statements counted to the sums
-- limit integer
-- returns how many rows were folded
--
-- One process at a time: the sums are few rows, and two would wait for each other.
WITH lock AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast fold {schema}', 0)) AS is_mine
), gone AS (
    DELETE FROM {schema}.delta d WHERE d.ctid = ANY (ARRAY(
        SELECT ctid FROM {schema}.delta WHERE (SELECT is_mine FROM lock) LIMIT %(limit)s::integer
    ))
    RETURNING minute, queue, type, priority, name, bucket, count, top, category, code
), states_counted AS (
    INSERT INTO {schema}.tally AS old (queue, type, priority, state, count)
    SELECT queue, type, priority, name::{schema}.state, sum(count)
    FROM gone WHERE minute IS NULL GROUP BY queue, type, priority, name
    ON CONFLICT (queue, type, priority, state) DO UPDATE SET count = old.count + excluded.count
), measures_counted AS (
    INSERT INTO {schema}.reading AS old
        (minute, queue, type, priority, measure, bucket, count, top)
    SELECT minute, queue, type, priority, name, bucket, sum(count), max(top)
    FROM gone WHERE minute >= 0 GROUP BY minute, queue, type, priority, name, bucket
    ON CONFLICT (minute, queue, type, priority, measure, bucket) DO UPDATE
    SET count = old.count + excluded.count, top = greatest(old.top, excluded.top)
), failures_counted AS (
    INSERT INTO {schema}.toll AS old (state, queue, type, category, code, count)
    SELECT name::{schema}.state, queue, type, category, code, sum(count)
    FROM gone WHERE minute = -1 GROUP BY name, queue, type, category, code
    ON CONFLICT (state, queue, type, category, code) DO UPDATE
    SET count = old.count + excluded.count
)
SELECT count(*) FROM gone
