-- expire_locks: delete expired named locks. ?1 now
DELETE FROM hold WHERE until <= ?1
