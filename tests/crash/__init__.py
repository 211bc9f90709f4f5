"""Durability with real processes and real signals."""
