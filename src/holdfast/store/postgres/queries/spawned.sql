-- spawned: everything these jobs spawned, and what that spawned, in the order of submission
-- id text[]
-- returns the job asked for with each
WITH RECURSIVE family AS (
    SELECT asked.id AS root, b.id, b.number
    FROM unnest(%(id)s::text[]) AS asked (id) JOIN {schema}.body b ON b.spawned_by = asked.id
    UNION
    SELECT family.root, b.id, b.number
    FROM family JOIN {schema}.body b ON b.spawned_by = family.id
)
SELECT root, id FROM family ORDER BY number
