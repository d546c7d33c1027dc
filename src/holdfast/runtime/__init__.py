"""Time, randomness, timers, the event loop and child processes."""
