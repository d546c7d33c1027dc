"""Worker processes under a parent that restarts them and renews their leases."""
