"""Idempotency keys that no wire can carry."""

from __future__ import annotations

import pytest

from rebuno_sync.errors import ValidationError
from rebuno_sync.kernel import Kernel

from .moves import AGENT


@pytest.mark.parametrize("key", ["", "a\ud800"])
def test_a_key_that_is_no_text_is_refused(kernel: Kernel, key: str) -> None:
    """An empty key and a lone surrogate are refused; on the wire the one is absent and the other
    replaced."""
    with pytest.raises(ValidationError, match="idempotency_key"):
        kernel.create(AGENT, idempotency_key=key)
    assert kernel.list().executions == []
