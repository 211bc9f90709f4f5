"""The current packages of model providers and frameworks, each over a recording client."""
