-- works with: 1

-- How many jobs of a rate may start at once; null, as earlier programs write it: the default.
ALTER TABLE {schema}.rule ADD COLUMN burst integer;
