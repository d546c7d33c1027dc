-- named_parents: the dependencies of a job. ?1 id
SELECT number, name FROM edge WHERE child = (SELECT seq FROM job WHERE id = ?1)
