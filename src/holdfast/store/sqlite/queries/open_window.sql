-- open_window: the rate window of a scope, unless it has ended. ?1 scope, ?2 now
SELECT started, until FROM rate_window WHERE scope = ?1 AND until > ?2
