-- newest_number: the newest number of any event or job.
SELECT max(
    coalesce((SELECT max(number) FROM journal), 0),
    coalesce((SELECT max(seq) FROM job), 0)
)
