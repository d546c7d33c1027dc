-- delete_edges: delete the dependencies of a job. ?1 seq
DELETE FROM edge WHERE child = ?1
