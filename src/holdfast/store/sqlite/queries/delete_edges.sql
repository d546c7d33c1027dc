-- delete_edges: delete whom a job waited for. ?1 seq
DELETE FROM edge WHERE child = ?1
