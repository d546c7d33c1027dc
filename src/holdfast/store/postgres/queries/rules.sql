-- rules: every limit that is set
SELECT scope, concurrency, rate, extract(epoch FROM per)::float8, burst
FROM {schema}.rule ORDER BY scope
