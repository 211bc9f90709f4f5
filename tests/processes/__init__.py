"""A process that has used everything, and those that it forks or spawns."""
