-- pending_add: children will wait for parents; promote links them after this transaction's commit
-- child text[]  name text[]: the id of the parent
-- parent bigint[]  seen text[]: its number and how it had ended, null if it was not looked up
--
-- A parent that was looked up may be deleted by now; its name is kept all the same.
INSERT INTO {schema}.tie (child, parent, name, seen)
SELECT c.number, coalesce(given.parent, p.number), given.name, given.seen::{schema}.state
FROM unnest(%(child)s::text[], %(name)s::text[], %(parent)s::bigint[], %(seen)s::text[])
    AS given (child, name, parent, seen)
JOIN {schema}.body c ON c.id = given.child
LEFT JOIN {schema}.body p ON p.id = given.name
