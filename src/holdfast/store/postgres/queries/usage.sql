-- usage: the time, the newest place, every limit that is set, and what is used of these limits
-- now timestamptz, null for the server's own
-- returns rows of four kinds, each with the columns it needs
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), limited AS MATERIALIZED (
    SELECT array_agg(name) FILTER (WHERE kind = 'queue') AS queues,
        array_agg(name) FILTER (WHERE kind <> 'queue') AS types,
        array_agg(name) FILTER (WHERE kind = 'key') AS keyed
    FROM (
        SELECT split_part(scope, ':', 1) AS kind, substr(scope, strpos(scope, ':') + 1) AS name
        FROM {schema}.rule
    ) AS rule
)
SELECT 'clock' AS kind, NULL AS name, NULL AS type, NULL AS limit_key,
    coalesce(pg_sequence_last_value('{schema}.place'), 0) AS count, NULL::integer AS rate,
    NULL::float8 AS per, NULL::integer AS burst, now AS until
FROM clock
UNION ALL
SELECT 'rule', scope, NULL, NULL, concurrency, rate, extract(epoch FROM per)::float8,
    burst, NULL
FROM {schema}.rule
UNION ALL
SELECT 'window', scope, NULL, NULL, started, NULL, NULL, NULL, until
FROM {schema}.rate_window, clock WHERE until >= clock.now
UNION ALL
SELECT 'running', queue, type, limit_key, count(*), NULL, NULL, NULL, NULL
FROM (
    SELECT j.queue, j.type, CASE WHEN j.type = ANY ((SELECT keyed FROM limited)::text[])
        THEN (SELECT b.limit_key FROM {schema}.body b WHERE b.number = j.number) END AS limit_key
    FROM {schema}.job j
    WHERE j.state = 'RUNNING' AND (j.queue = ANY ((SELECT queues FROM limited)::text[])
        OR j.type = ANY ((SELECT types FROM limited)::text[]))
) AS used
GROUP BY queue, type, limit_key
