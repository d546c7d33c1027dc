"""What goes over the wire as JSON: shared by the service and its clients."""
