-- seq_of: the number of a job. ?1 id
SELECT seq FROM job WHERE id = ?1
