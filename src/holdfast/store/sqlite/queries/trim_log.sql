-- trim_log: delete all but the newest lines. ?1 seq, ?2 number to keep
DELETE FROM log
WHERE seq = ?1 AND number <= (
    SELECT number FROM log WHERE seq = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2
)
