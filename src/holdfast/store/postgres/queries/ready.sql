-- ready: the next ready jobs, for a claim under limits to choose from
-- The parameters are those of candidates.
-- returns number, queue, type and limit key of each, and whether a limit applies to it
WITH {candidates}
SELECT number, queue, type, is_limited,
    (SELECT b.limit_key FROM {schema}.body b WHERE b.number = found.number)
FROM found
