-- open_window: the rate window of a scope, unless it has ended. ?1 scope, ?2 now, ?3 period
-- A window that ends later than one period from now was opened before the clock was set back.
SELECT started, until FROM rate_window WHERE scope = ?1 AND until > ?2 AND until <= ?2 + ?3
