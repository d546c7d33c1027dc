"""The applications under ``examples/``, as real processes."""
