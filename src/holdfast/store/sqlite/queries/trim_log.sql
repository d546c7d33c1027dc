-- trim_log: drop the lines beyond the newest. ?1 seq, ?2 how many are kept
DELETE FROM log
WHERE seq = ?1 AND number <= (
    SELECT number FROM log WHERE seq = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2
)
