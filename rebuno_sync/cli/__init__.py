"""The command line, ``rebuno-sync``."""
