-- rule_set: set a limit
-- scope text  concurrency integer  rate integer  per float8 in seconds
-- burst integer
INSERT INTO {schema}.rule (scope, concurrency, rate, per, burst)
VALUES (%(scope)s, %(concurrency)s::integer, %(rate)s::integer,
    make_interval(secs => %(per)s::float8), %(burst)s::integer)
ON CONFLICT (scope) DO UPDATE
SET concurrency = excluded.concurrency, rate = excluded.rate, per = excluded.per,
    burst = excluded.burst
