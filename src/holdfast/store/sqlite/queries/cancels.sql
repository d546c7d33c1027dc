-- cancels: the wish to cancel a job. ?1 id
SELECT cancel FROM job WHERE id = ?1
