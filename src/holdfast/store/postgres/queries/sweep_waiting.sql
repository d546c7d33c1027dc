-- sweep_waiting: delete entries of jobs that no longer wait
-- limit integer
-- Both rows are locked: an operator's retry makes a job wait again with the same entry.
DELETE FROM {schema}.waiting w
WHERE w.child IN (
    SELECT old.child
    FROM {schema}.waiting old JOIN {schema}.job j ON j.number = old.child
    WHERE (old.due OR old.open = 0) AND j.state <> 'PENDING'
    LIMIT %(limit)s::integer
    FOR UPDATE OF old SKIP LOCKED
    FOR SHARE OF j SKIP LOCKED
)
