-- any_ended: whether a dependency of a job has ended. ?1 seq
SELECT EXISTS (SELECT 1 FROM edge WHERE child = ?1 AND ended IS NOT NULL)
