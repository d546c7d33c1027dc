-- expire_windows: delete the records of rates of which nothing is used any more. ?1 now
DELETE FROM rate_window WHERE until <= ?1
