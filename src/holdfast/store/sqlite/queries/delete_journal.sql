-- delete_journal: delete the part of a job's history that no subscriber can read any more.
-- ?1 number of its newest transition, ?2 last number to delete
WITH RECURSIVE chain (number) AS (
    SELECT ?1
    UNION ALL
    SELECT journal.previous
    FROM chain JOIN journal ON journal.number = chain.number
)
DELETE FROM journal WHERE number IN (SELECT number FROM chain WHERE number <= ?2)
