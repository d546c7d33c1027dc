-- newest_number: the newest number given to an event or a job.
SELECT max(
    coalesce((SELECT max(number) FROM journal), 0),
    coalesce((SELECT max(seq) FROM job), 0)
)
