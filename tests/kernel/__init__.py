"""The embedded kernel's own rules, and what its file goes through."""
