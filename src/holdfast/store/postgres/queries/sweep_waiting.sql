-- sweep_waiting: forget ripe jobs that no longer wait
-- most integer
DELETE FROM {schema}.waiting w
WHERE w.child IN (
    SELECT ripe.child
    FROM {schema}.waiting ripe JOIN {schema}.job j ON j.number = ripe.child
    WHERE (ripe.due OR ripe.open = 0) AND j.state <> 'PENDING'
    LIMIT %(most)s::integer
)
