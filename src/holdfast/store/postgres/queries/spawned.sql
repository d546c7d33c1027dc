-- spawned: everything these jobs spawned, and what that spawned, in the order of submission
-- id text[]
-- returns the requested job with each
WITH RECURSIVE family AS (
    SELECT requested.id AS root, b.id, b.number
    FROM unnest(%(id)s::text[]) AS requested (id)
    JOIN {schema}.body b ON b.spawned_by = requested.id
    UNION
    SELECT family.root, b.id, b.number
    FROM family JOIN {schema}.body b ON b.spawned_by = family.id
)
SELECT root, id FROM family ORDER BY number
