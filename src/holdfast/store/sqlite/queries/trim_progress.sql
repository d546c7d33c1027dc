-- trim_progress: delete old progress events. ?1 last number to delete
DELETE FROM journal INDEXED BY journal_progress WHERE event = 'progress' AND number <= ?1
