-- next_due: when the next waiting job is due, and whether there are pending links
SELECT (
    SELECT due_at FROM {schema}.job
    WHERE state IN ('DELAYED', 'RETRYING') AND due_at IS NOT NULL
    ORDER BY due_at, number LIMIT 1
), EXISTS (SELECT FROM {schema}.tie)
