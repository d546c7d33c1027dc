"""What only one engine has."""
