"""An application with a model and tasks."""
