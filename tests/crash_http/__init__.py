"""Durability over HTTP: real agents, real kernels, real signals and lines that lose replies."""
