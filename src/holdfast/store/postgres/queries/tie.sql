-- tie: children shall wait for parents, to be joined once this transaction has committed
-- child text[]  name text[]: the id of the parent
-- parent bigint[]  seen text[]: its number and how it had ended, as far as they were looked up
--
-- A parent that was looked up may be gone by now, and is named all the same.
INSERT INTO {schema}.tie (child, parent, name, seen)
SELECT c.number, coalesce(given.parent, p.number), given.name, given.seen::{schema}.state
FROM unnest(%(child)s::text[], %(name)s::text[], %(parent)s::bigint[], %(seen)s::text[])
    AS given (child, name, parent, seen)
JOIN {schema}.body c ON c.id = given.child
LEFT JOIN {schema}.body p ON p.id = given.name
