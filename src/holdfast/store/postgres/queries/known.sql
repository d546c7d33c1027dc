-- known: which of these jobs exist
-- id text[]
SELECT id FROM {schema}.body WHERE id = ANY (%(id)s::text[])
