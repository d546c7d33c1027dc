"""The stores while servers, connections or clients fail."""
