-- adopt_again: adopted jobs that were retried wait for what had failed before
-- id text[]: the jobs adopted in this transaction
-- returns the number of each job that waits again; see end_on_retry in model/dependencies
UPDATE {schema}.edge e SET ended = NULL
FROM {schema}.job c, {schema}.job p, {schema}.body cb, {schema}.body pb
WHERE c.number = e.child AND p.number = e.parent AND cb.number = e.child AND pb.number = e.parent
  AND (cb.id = ANY (%(id)s::text[]) OR pb.id = ANY (%(id)s::text[]))
  AND c.state = 'PENDING' AND c.generation > 1
  AND (cb.dependency_kind IS NULL OR cb.dependency_kind NOT IN ('AFTER_ANY', 'AFTER_ALL'))
  AND p.state IN ('FAILED', 'DEAD_LETTER', 'CANCELLED') AND p.finished_at <= c.updated_at
RETURNING e.child
