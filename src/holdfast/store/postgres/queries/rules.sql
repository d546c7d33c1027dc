-- rules: every limit that is set
SELECT scope, concurrency, rate, extract(epoch FROM per)::float8 FROM {schema}.rule ORDER BY scope
