"""What can be done with jobs, on any store; the app, the CLI, the service and workers call it."""
