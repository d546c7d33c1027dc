-- undo_add_alike: take back jobs of which only the moving part was written. ?1 first, ?2 last
DELETE FROM job WHERE seq BETWEEN ?1 AND ?2
