-- ageing: the queues with ageing, and their interval.
SELECT name, ageing FROM queue WHERE ageing IS NOT NULL
