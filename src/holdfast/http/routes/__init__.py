"""The routes, one module per subject, each with its list of endpoints."""
