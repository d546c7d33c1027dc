-- rule_lift: lift a limit
-- scope text
DELETE FROM {schema}.rule WHERE scope = %(scope)s
