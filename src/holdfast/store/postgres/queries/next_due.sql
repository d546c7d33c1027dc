-- next_due: when the next waiting job will be due, and whether jobs are to be joined to others
SELECT (
    SELECT due_at FROM {schema}.job
    WHERE state IN ('DELAYED', 'RETRYING') AND due_at IS NOT NULL
    ORDER BY due_at, number LIMIT 1
), EXISTS (SELECT FROM {schema}.tie)
