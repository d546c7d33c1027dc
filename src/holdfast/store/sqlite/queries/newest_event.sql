-- newest_event: the number of the newest event.
SELECT coalesce(max(number), 0) FROM journal
