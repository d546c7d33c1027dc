-- expire_windows: delete rate windows that have ended. ?1 now
DELETE FROM rate_window WHERE until <= ?1
