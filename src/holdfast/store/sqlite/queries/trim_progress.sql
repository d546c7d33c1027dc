-- trim_progress: drop old progress events. ?1 last number that is dropped
DELETE FROM journal INDEXED BY journal_progress WHERE event = 'progress' AND number <= ?1
