"""Signatures: what both forms cover, and that every wrong one gets the same answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebuno_sync.signing import (
    MAX_SKEW_SECONDS,
    sign_body,
    sign_request,
    verify_body,
    verify_request,
)

VECTORS = json.loads((Path(__file__).parent / "vectors" / "signatures.json").read_text("utf-8"))
NOW = 1_767_225_600
BODY = b'{"result":null}'


@dataclass(frozen=True)
class Received:
    """A signed request as a verifier sees it: every header with all its values."""

    method: str = "POST"
    target: str = "/v0/executions/e/steps?a=1"
    timestamp: tuple[str, ...] = (str(NOW),)
    dispatch_id: tuple[str, ...] = ("019a2b3c-4d5e-7f60-8123-000000000001",)
    dispatch_attempt: tuple[str, ...] = ("1",)
    body: bytes = BODY
    signature: tuple[str, ...] = ()

    def signed(self, secret: str = "s3cret") -> Received:
        signature = sign_request(
            secret,
            method=self.method,
            target=self.target,
            timestamp="".join(self.timestamp),
            dispatch_id="".join(self.dispatch_id),
            dispatch_attempt="".join(self.dispatch_attempt),
            body=self.body,
        )
        return replace(self, signature=(signature,))

    def passes(self, *secrets: str, now: int = NOW) -> bool:
        return verify_request(secrets or ["s3cret"], now=now, **vars(self))


def received(vector: Mapping[str, str]) -> Received:
    def header(name: str) -> tuple[str, ...]:
        return (vector[name],) if vector[name] else ()

    return Received(
        method=vector["method"],
        target=vector["target"],
        timestamp=header("timestamp"),
        dispatch_id=header("dispatch_id"),
        dispatch_attempt=header("dispatch_attempt"),
        body=vector["body"].encode(),
        signature=(vector["request_signature"],),
    )


@pytest.mark.parametrize("vector", VECTORS)
class TestVectors:
    def test_body_form_is_signed_as_the_vector_says(self, vector: Mapping[str, str]) -> None:
        signature = sign_body(vector["secret"], vector["body"].encode())
        assert signature == vector["body_signature"]

    def test_body_form_of_the_vector_is_verified(self, vector: Mapping[str, str]) -> None:
        body = vector["body"].encode()
        assert verify_body([vector["secret"]], vector["body_signature"], body)
        assert not verify_body([vector["secret"] + "x"], vector["body_signature"], body)

    def test_request_form_is_signed_as_the_vector_says(self, vector: Mapping[str, str]) -> None:
        assert received(vector).signed(vector["secret"]) == received(vector)

    def test_request_form_of_the_vector_is_verified(self, vector: Mapping[str, str]) -> None:
        now = int(vector["timestamp"])
        assert received(vector).passes(vector["secret"], now=now)
        assert not received(vector).passes(vector["secret"] + "x", now=now)


@pytest.mark.parametrize(
    "change",
    [
        {"method": "PUT"},
        {"target": "/v0/executions/e/steps?a=2"},
        {"target": "/prefix/v0/executions/e/steps?a=1"},
        {"target": "/v0/executions/e/steps?a=1&"},
        {"timestamp": (str(NOW + 1),)},
        {"timestamp": ("0" + str(NOW),)},
        {"dispatch_id": ("019a2b3c-4d5e-7f60-8123-000000000002",)},
        {"dispatch_id": ("019A2B3C-4D5E-7F60-8123-000000000001",)},
        {"dispatch_id": ()},
        {"dispatch_attempt": ("2",)},
        {"dispatch_attempt": ("01",)},
        {"dispatch_attempt": ()},
        {"body": BODY + b"\n"},
        {"body": b""},
    ],
    ids=str,
)
def test_each_part_of_a_request_is_covered(change: dict[str, Any]) -> None:
    request = Received().signed()
    assert request.passes()
    assert not replace(request, **change).passes()


def test_parts_cannot_be_moved_across_a_line_break() -> None:
    """Without this rule two requests with another split of the same bytes share a signature."""
    request = Received(dispatch_id=("a",), dispatch_attempt=("1",), body=b"2\nrest").signed()
    moved = replace(request, dispatch_attempt=("1\n2",), body=b"rest")
    assert request.passes()
    assert not moved.passes()


@pytest.mark.parametrize("line_break", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("part", ["target", "timestamp", "dispatch_id", "dispatch_attempt"])
def test_a_line_break_in_a_signed_part_is_refused(part: str, line_break: str) -> None:
    request = Received().signed()
    value = getattr(request, part)
    if isinstance(value, str):
        broken = replace(request, **{part: value + line_break})
    else:
        broken = replace(request, **{part: (value[0] + line_break,)})
    assert not broken.passes()
    with pytest.raises(ValueError, match="line break"):
        broken.signed()


@pytest.mark.parametrize("part", ["signature", "timestamp", "dispatch_id", "dispatch_attempt"])
def test_a_repeated_header_is_refused_even_when_both_values_are_right(part: str) -> None:
    request = Received().signed()
    assert not replace(request, **{part: getattr(request, part) * 2}).passes()


@pytest.mark.parametrize(
    ("age", "accepted"),
    [
        (0, True),
        (MAX_SKEW_SECONDS, True),
        (-MAX_SKEW_SECONDS, True),
        (MAX_SKEW_SECONDS + 1, False),
        (-MAX_SKEW_SECONDS - 1, False),
    ],
)
def test_the_window_includes_both_of_its_ends(age: int, accepted: bool) -> None:
    assert Received().signed().passes(now=NOW + age) is accepted


@pytest.mark.parametrize("text", [f"+{NOW}", f"000{NOW}", "0" * 5000 + str(NOW)])
def test_any_base_10_text_of_an_integer_is_a_timestamp(text: str) -> None:
    assert Received(timestamp=(text,)).signed().passes()


def test_a_negative_timestamp_counts_as_one() -> None:
    assert Received(timestamp=("-1",)).signed().passes(now=0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "now",
        f" {NOW}",
        f"{NOW} ",
        f"{NOW}.0",
        "1_767_225_600",
        hex(NOW),
        "1.7672256e9",
        "".join(chr(0x0660 + int(digit)) for digit in str(NOW)),
        "".join(chr(0xFF10 + int(digit)) for digit in str(NOW)),
        str(2**64 + NOW),
        "9" * 5000,
    ],
)
def test_a_timestamp_that_is_not_a_base_10_int64_is_refused(text: str) -> None:
    signature = Received().signed().signature
    assert not Received(timestamp=(text,), signature=signature).passes()


def test_a_request_without_a_timestamp_is_refused() -> None:
    assert not Received(timestamp=()).signed().passes(now=0)


class TestRotation:
    def test_every_secret_in_use_is_accepted(self) -> None:
        for secret in ("old", "new"):
            assert verify_body(["new", "old"], sign_body(secret, BODY), BODY)
            assert Received().signed(secret).passes("new", "old")

    def test_a_retired_secret_is_refused(self) -> None:
        assert not verify_body(["new"], sign_body("old", BODY), BODY)
        assert not Received().signed("old").passes("new")

    def test_without_a_secret_nothing_passes(self) -> None:
        assert not verify_body([], sign_body("", BODY), BODY)
        request = Received().signed("")
        assert not verify_request([], now=NOW, **vars(request))

    def test_no_secret_is_left_untried(self) -> None:
        """The time taken must not tell which secret matched."""
        tried = iter(["right", "other", "another"])
        assert verify_body(tried, sign_body("right", BODY), BODY)
        assert list(tried) == []
        tried = iter(["right", "other", "another"])
        assert verify_request(tried, now=NOW, **vars(Received().signed("right")))
        assert list(tried) == []


def spoiled(signature: str) -> dict[str, str]:
    scheme, _, digits = signature.partition("=")
    return {
        "empty": "",
        "scheme alone": f"{scheme}=",
        "no scheme": digits,
        "unknown scheme": f"v2={digits}",
        "upper-case scheme": f"{scheme.upper()}={digits}",
        "upper-case digits": f"{scheme}={digits.upper()}",
        "one digit short": signature[:-1],
        "one digit more": signature + "0",
        "another digit": signature[:-1] + ("0" if signature[-1] != "0" else "1"),
        "not hexadecimal": f"{scheme}={'g' * 64}",
        "white space before": " " + signature,
        "white space after": signature + " ",
        "line break after": signature + "\n",
        "two in one": f"{signature},{signature}",
        "Latin-1": signature[:-1] + "é",
        "beyond Latin-1": signature[:-1] + "€",
        "lone surrogate": signature[:-1] + "\udc80",
        "full-width digits": f"{scheme}=" + "０" * 64,
        "NUL": signature + "\0",
        "long": signature * 1000,
    }


KINDS = list(spoiled("="))


@pytest.mark.parametrize("kind", KINDS)
def test_every_malformed_body_signature_gets_the_same_answer(kind: str) -> None:
    assert verify_body(["s3cret"], spoiled(sign_body("s3cret", BODY))[kind], BODY) is False


@pytest.mark.parametrize("kind", KINDS)
def test_every_malformed_request_signature_gets_the_same_answer(kind: str) -> None:
    request = Received().signed()
    header = spoiled(request.signature[0])[kind]
    assert replace(request, signature=(header,)).passes() is False


def test_a_missing_signature_gets_the_same_answer() -> None:
    assert verify_body(["s3cret"], None, BODY) is False
    assert Received().passes() is False


def test_neither_form_passes_for_the_other() -> None:
    request = Received().signed()
    assert not verify_body(["s3cret"], request.signature[0], BODY)
    assert not replace(request, signature=(sign_body("s3cret", BODY),)).passes()


def test_a_part_that_no_header_can_carry_is_refused() -> None:
    request = Received().signed()
    assert not replace(request, dispatch_id=("€",)).passes()
    with pytest.raises(ValueError, match="latin-1"):
        replace(request, dispatch_id=("€",)).signed()


SECRETS = st.text(st.characters(exclude_categories=["Cs"]))
HEADER_TEXT = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n"))


@given(secret=SECRETS, body=st.binary(), others=st.lists(SECRETS))
def test_what_is_signed_over_the_body_is_verified(
    secret: str, body: bytes, others: list[str]
) -> None:
    assert verify_body([*others, secret], sign_body(secret, body), body)


@given(secret=SECRETS, body=st.binary(), other=st.binary())
def test_another_body_is_refused(secret: str, body: bytes, other: bytes) -> None:
    assert verify_body([secret], sign_body(secret, body), other) is (body == other)


@given(
    secret=SECRETS,
    others=st.lists(SECRETS),
    method=st.sampled_from(["GET", "POST", "post", "PUT"]),
    target=HEADER_TEXT,
    timestamp=st.integers(min_value=-(2**63), max_value=2**63 - 1),
    skew=st.integers(-MAX_SKEW_SECONDS, MAX_SKEW_SECONDS),
    lease=st.tuples(HEADER_TEXT, HEADER_TEXT),
    body=st.binary(),
)
def test_what_is_signed_over_a_request_is_verified(
    secret: str,
    others: list[str],
    method: str,
    target: str,
    timestamp: int,
    skew: int,
    lease: tuple[str, str],
    body: bytes,
) -> None:
    request = Received(
        method=method,
        target=target,
        timestamp=(str(timestamp),),
        dispatch_id=(lease[0],),
        dispatch_attempt=(lease[1],),
        body=body,
    ).signed(secret)
    assert request.passes(*others, secret, now=timestamp + skew)


@given(header=st.none() | st.text(), body=st.binary())
def test_no_header_raises(header: str | None, body: bytes) -> None:
    assert verify_body(["s3cret"], header, body) is False


@given(values=st.lists(st.lists(st.text(), max_size=2), min_size=4, max_size=4), target=st.text())
def test_no_set_of_request_headers_raises(values: list[list[str]], target: str) -> None:
    signature, timestamp, dispatch_id, dispatch_attempt = values
    accepted = verify_request(
        ["s3cret"],
        method="POST",
        target=target,
        signature=signature,
        timestamp=timestamp,
        dispatch_id=dispatch_id,
        dispatch_attempt=dispatch_attempt,
        body=b"",
        now=0,
    )
    assert accepted is False
