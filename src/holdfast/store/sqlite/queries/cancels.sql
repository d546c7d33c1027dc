-- cancels: the cancel request for a job. ?1 id
SELECT cancel FROM job WHERE id = ?1
