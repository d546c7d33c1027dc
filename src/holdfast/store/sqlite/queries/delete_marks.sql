-- delete_marks: delete the marks of minutes without jobs.
DELETE FROM mark WHERE last < (SELECT min(seq) FROM job)
