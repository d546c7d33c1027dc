-- open_windows: the scopes with this prefix that have an open rate window.
-- ?1 prefix, ?2 now, ?3 period
SELECT scope FROM rate_window WHERE substr(scope, 1, length(?1)) = ?1 AND until > ?2
    AND until <= ?2 + ?3
