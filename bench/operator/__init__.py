"""What the reads of an operator take over a store with a week of finished jobs."""
