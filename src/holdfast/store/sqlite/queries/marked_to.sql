-- marked_to: the last number at which something of a minute or earlier may lie. ?1 minute
SELECT max(last) FROM mark WHERE minute <= ?1
