-- configure: change some settings of a queue
-- queue text  paused boolean or null for no change
-- ageing float8 in seconds  set_ageing boolean: whether to change it
INSERT INTO {schema}.queue AS old (name, paused, ageing)
VALUES (%(queue)s, coalesce(%(paused)s::boolean, false),
    make_interval(secs => %(ageing)s::float8))
ON CONFLICT (name) DO UPDATE
SET paused = coalesce(%(paused)s::boolean, old.paused),
    ageing = CASE WHEN %(set_ageing)s::boolean THEN excluded.ageing ELSE old.ageing END
