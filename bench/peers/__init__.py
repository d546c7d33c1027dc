"""Programs that other interpreters run."""
