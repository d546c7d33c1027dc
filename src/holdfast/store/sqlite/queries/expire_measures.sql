-- expire_measures: drop old measures. ?1 first minute that is kept
DELETE FROM minute WHERE minute < ?1
