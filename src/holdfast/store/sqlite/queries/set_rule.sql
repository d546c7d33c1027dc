-- set_rule: set a limit. ?1 scope, ?2 concurrency, ?3 rate, ?4 per
INSERT OR REPLACE INTO rule (scope, concurrency, rate, per) VALUES (?1, ?2, ?3, ?4)
