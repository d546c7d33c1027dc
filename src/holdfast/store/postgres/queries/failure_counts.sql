-- failure_counts: how many jobs failed, by category, by code and by type
-- the filters, null where there is none
SELECT grouping(j.failure_category, j.failure_code, j.type),
    j.failure_category, j.failure_code, j.type, count(*)
FROM {schema}.job j
WHERE {failed}
GROUP BY GROUPING SETS ((j.failure_category), (j.failure_code), (j.type))
