-- adopt_waiting: count the open dependencies of jobs again
-- child bigint[]
UPDATE {schema}.waiting w
SET open = counted.open, due = counted.due
FROM (
    SELECT child, count(*) FILTER (WHERE ended IS NULL) AS open,
        coalesce(bool_or(ended <> 'COMPLETED'), false) AS due
    FROM {schema}.edge WHERE child = ANY (%(child)s::bigint[]) GROUP BY child
) AS counted
WHERE w.child = counted.child
