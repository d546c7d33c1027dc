-- next_due: when the next waiting job is due.
SELECT min(due_at) FROM job INDEXED BY job_due WHERE state IN ('DELAYED', 'RETRYING')
