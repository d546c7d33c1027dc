-- marked_from: the first number at which something of a minute or later may lie. ?1 minute
SELECT min(first) FROM mark WHERE minute >= ?1
