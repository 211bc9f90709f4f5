"""``python -m rebuno_sync``: the command line."""

from .cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
