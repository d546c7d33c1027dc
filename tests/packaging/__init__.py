"""What people install: the built files, alone and with each extra."""
