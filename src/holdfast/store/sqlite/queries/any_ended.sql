-- any_ended: whether something a job waits for has ended. ?1 seq
SELECT EXISTS (SELECT 1 FROM edge WHERE child = ?1 AND ended IS NOT NULL)
