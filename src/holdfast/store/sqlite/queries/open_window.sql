-- open_window: what is recorded of the rate of a scope, unless it is over. ?1 scope, ?2 now
SELECT started, until FROM rate_window WHERE scope = ?1 AND until >= ?2
