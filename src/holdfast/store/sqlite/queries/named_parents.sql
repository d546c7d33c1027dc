-- named_parents: what a job waits or waited for. ?1 id
SELECT number, name FROM edge WHERE child = (SELECT seq FROM job WHERE id = ?1)
