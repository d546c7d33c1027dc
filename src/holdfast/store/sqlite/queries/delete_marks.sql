-- delete_marks: drop the minutes of which no job is left.
DELETE FROM mark WHERE last < (SELECT min(seq) FROM job)
