-- delete_journal: delete of a job's history what no subscriber can ask for any more.
-- ?1 number of its newest transition, ?2 last number that is dropped
WITH RECURSIVE chain (number) AS (
    SELECT ?1
    UNION ALL
    SELECT journal.previous
    FROM chain JOIN journal ON journal.number = chain.number
)
DELETE FROM journal WHERE number IN (SELECT number FROM chain WHERE number <= ?2)
