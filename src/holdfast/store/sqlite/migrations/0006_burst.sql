-- How many jobs of a rate may start at once; NULL, as earlier programs write it: the default.
ALTER TABLE rule ADD COLUMN burst INTEGER;
