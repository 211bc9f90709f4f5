"""What several tests share: child processes, logs of effects, waiting with a limit."""
