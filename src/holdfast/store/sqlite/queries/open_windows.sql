-- open_windows: the scopes that begin so and have an open rate window. ?1 beginning, ?2 now
SELECT scope FROM rate_window WHERE substr(scope, 1, length(?1)) = ?1 AND until > ?2
