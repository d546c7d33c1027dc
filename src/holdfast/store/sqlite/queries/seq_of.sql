-- seq_of: the seq of a job. ?1 id
SELECT seq FROM job WHERE id = ?1
