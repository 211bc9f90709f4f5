"""Which step an effect is (protocol.md 6.2): the kernel computes it, never an agent."""

from __future__ import annotations

from hashlib import sha256

__all__ = ["args_hash", "step_id"]


def args_hash(canonical: str) -> str:
    """The hash of arguments in canonical form (`canonical.canonicalize`): 64 hex digits."""
    return sha256(canonical.encode()).hexdigest()


def step_id(execution_id: str, kind: str, target: str, args_hash: str, occurrence: int) -> str:
    """The step's id: 64 hex digits.

    Every field goes in with the length of its UTF-8 bytes, so that no two lists of fields make
    the same text. The dispatch is not part of it: a later dispatch meets the same step.
    """
    digest = sha256()
    for field in (execution_id, kind, target, args_hash, str(occurrence)):
        encoded = field.encode()
        digest.update(b"%d:%b" % (len(encoded), encoded))
    return digest.hexdigest()
