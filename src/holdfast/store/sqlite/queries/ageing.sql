-- ageing: the queues that lift waiting jobs, with the interval.
SELECT name, ageing FROM queue WHERE ageing IS NOT NULL
