-- rules: every limit.
SELECT scope, concurrency, rate, per FROM rule
