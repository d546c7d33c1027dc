-- forget_edges: delete whom a job waited for and who waited for it. ?1 seq
DELETE FROM edge WHERE child = ?1 OR parent = ?1
