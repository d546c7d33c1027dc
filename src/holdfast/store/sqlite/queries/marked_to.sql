-- marked_to: the last journal number of a minute or any earlier one. ?1 minute
SELECT max(last) FROM mark WHERE minute <= ?1
