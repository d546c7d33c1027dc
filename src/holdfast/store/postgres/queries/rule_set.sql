-- rule_set: set a limit
-- scope text  concurrency integer  rate integer  per float8 in seconds
INSERT INTO {schema}.rule (scope, concurrency, rate, per)
VALUES (%(scope)s, %(concurrency)s::integer, %(rate)s::integer,
    make_interval(secs => %(per)s::float8))
ON CONFLICT (scope) DO UPDATE
SET concurrency = excluded.concurrency, rate = excluded.rate, per = excluded.per
