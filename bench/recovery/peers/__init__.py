"""Programs that other interpreters run: ``submit`` one endless job, or ``work``."""
