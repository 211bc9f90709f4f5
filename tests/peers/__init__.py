"""The published async SDKs against our kernel, each in an environment of its own."""
