-- rate_window: write the number of claims in a rate window. ?1 scope, ?2 claims, ?3 end
INSERT OR REPLACE INTO rate_window (scope, started, until) VALUES (?1, ?2, ?3)
