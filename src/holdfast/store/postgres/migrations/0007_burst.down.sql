-- loses: the bursts of rate limits
ALTER TABLE {schema}.rule DROP COLUMN burst;
