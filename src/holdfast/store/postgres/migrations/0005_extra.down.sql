-- loses: the headers and other plain fields of jobs
ALTER TABLE {schema}.body DROP COLUMN extra;
