-- open_windows: the scopes with this prefix of whose rate something is recorded. ?1 prefix, ?2 now
SELECT scope FROM rate_window WHERE substr(scope, 1, length(?1)) = ?1 AND until >= ?2
