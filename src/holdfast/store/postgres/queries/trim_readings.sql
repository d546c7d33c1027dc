-- trim_readings: delete measures from before a minute
-- before integer, minutes from the epoch
DELETE FROM {schema}.reading WHERE minute < %(before)s::integer
