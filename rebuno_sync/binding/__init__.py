"""A handler's signature -> how its input is given (protocol.md 13.6), and its JSON Schema."""

from .binding import Binding, InputInvalid

__all__ = ["Binding", "InputInvalid"]
