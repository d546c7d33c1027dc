-- followers: the jobs that are linked to a job they wait or waited for. ?1 id
SELECT job.id
FROM edge JOIN job ON job.seq = edge.child
WHERE edge.parent = (SELECT parent.seq FROM job AS parent WHERE parent.id = ?1)
