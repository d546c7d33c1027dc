-- newest_number: the newest number of any event or job, and whether a queue has ageing.
SELECT
    max(
        coalesce((SELECT max(number) FROM journal), 0),
        coalesce((SELECT max(seq) FROM job), 0)
    ),
    EXISTS (SELECT 1 FROM queue WHERE ageing IS NOT NULL)
