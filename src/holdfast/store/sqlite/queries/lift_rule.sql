-- lift_rule: lift a limit. ?1 scope
DELETE FROM rule WHERE scope = ?1
