"""What deploy/ holds is right: files parse, commands exist, metrics are real."""
