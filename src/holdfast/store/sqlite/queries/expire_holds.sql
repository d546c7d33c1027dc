-- expire_holds: drop what nobody holds any more. ?1 now
DELETE FROM hold WHERE until <= ?1
