-- set_rule: set a limit. ?1 scope, ?2 concurrency, ?3 rate, ?4 per, ?5 burst
INSERT OR REPLACE INTO rule (scope, concurrency, rate, per, burst) VALUES (?1, ?2, ?3, ?4, ?5)
