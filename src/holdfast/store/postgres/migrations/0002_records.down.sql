DROP TABLE {schema}.record;
