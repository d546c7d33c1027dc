-- expire_measures: delete old measures. ?1 first minute to keep
DELETE FROM minute WHERE minute < ?1
