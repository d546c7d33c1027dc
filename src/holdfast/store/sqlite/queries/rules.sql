-- rules: every limit.
SELECT scope, concurrency, rate, per, burst FROM rule
