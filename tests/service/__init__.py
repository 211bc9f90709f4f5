"""The agent as a service, and the operator's client: over real HTTP on this machine."""
