-- kinds: of what there are records
SELECT DISTINCT kind FROM {schema}.record ORDER BY kind
