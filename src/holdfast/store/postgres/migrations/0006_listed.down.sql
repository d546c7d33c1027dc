CREATE INDEX IF NOT EXISTS job_state ON {schema}.job (state, number)
    WHERE state NOT IN ('SCHEDULED', 'RUNNING', 'COMPLETED');
DROP INDEX {schema}.job_listed;
