-- rate_window: record what is used of a rate; see StartPace.recorded. ?1 scope, ?2 started, ?3 instant
INSERT OR REPLACE INTO rate_window (scope, started, until) VALUES (?1, ?2, ?3)
