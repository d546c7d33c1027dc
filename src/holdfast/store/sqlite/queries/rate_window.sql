-- rate_window: note how many claims a window has seen. ?1 scope, ?2 claims, ?3 end
INSERT OR REPLACE INTO rate_window (scope, started, until) VALUES (?1, ?2, ?3)
