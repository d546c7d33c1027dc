"""The job and its rules: values and pure functions; time and randomness are arguments."""
