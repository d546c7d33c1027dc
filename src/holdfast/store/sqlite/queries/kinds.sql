-- kinds: of what there are records
SELECT DISTINCT kind FROM record ORDER BY kind
