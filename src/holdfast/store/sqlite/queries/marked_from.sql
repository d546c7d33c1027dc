-- marked_from: the first journal number of a minute or any later one. ?1 minute
SELECT min(first) FROM mark WHERE minute >= ?1
