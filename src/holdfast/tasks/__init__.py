"""The user's functions: how they are registered, called and scheduled."""
