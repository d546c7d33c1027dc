-- expire_windows: drop rate windows that are over. ?1 now
DELETE FROM rate_window WHERE until <= ?1
