"""The dashboard: pages over the operations of an app, for the service and for other sites."""
