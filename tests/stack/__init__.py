"""The execution stack: effects, their context, leases, signals, threads, ``run``."""
