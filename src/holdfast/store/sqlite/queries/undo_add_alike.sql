-- undo_add_alike: delete jobs of which only the changing part was written. ?1 first, ?2 last
DELETE FROM job WHERE seq BETWEEN ?1 AND ?2
