"""The embedded kernel over HTTP: its routes, who may use them, and its deliveries."""
