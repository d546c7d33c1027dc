-- works with: 1

-- The plain fields of a job, as one document that no statement reads.
ALTER TABLE {schema}.body ADD COLUMN extra bytea;
