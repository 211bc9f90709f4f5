"""A body's exception is recorded, and raised again from its record."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from typing import Any

import openai
import pydantic
import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.labels import label

from rebuno_sync.errors import ToolError
from rebuno_sync.failures import decode_failure, encode_failure, not_storable


class MyError(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"code {code}: {detail}")
        self.code = code
        self.detail = detail


class Holding(Exception):
    def __init__(self, thing: object) -> None:
        super().__init__("holds a thing")
        self.thing = thing
        self.size = 3


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Needy(Exception):
    def __init__(self, lock: object) -> None:
        super().__init__("needs its lock")
        self.lock = lock

    def __str__(self) -> str:
        return f"lock {self.lock}"


class Outer:
    class NestedError(LookupError):
        pass


def recorded(error: BaseException) -> dict[str, Any]:
    record = json.loads(encode_failure(error))
    assert isinstance(record, dict)
    return record


def raised_again(error: BaseException) -> ToolError:
    return decode_failure(encode_failure(error), "charge", "step-1")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_the_error_names_its_step_and_tells_what_was_raised() -> None:
    error = raised_again(raised(MyError(5, detail="x")))
    assert str(error) == "charge: code 5: x"
    assert (error.tool_id, error.step_id) == ("charge", "step-1")
    assert error.error_type == f"{__name__}.MyError"
    assert "raise error" in error.traceback
    assert error.traceback.endswith("MyError: code 5: x\n")


def test_an_exception_with_its_own_init_is_built_again_whole() -> None:
    cause = raised_again(MyError(5, detail="x")).__cause__
    assert type(cause) is MyError
    assert (cause.code, cause.detail, str(cause)) == (5, "x", "code 5: x")


@pytest.mark.parametrize(
    "error",
    [
        KeyError("b"),
        ValueError("a", 1, None, [1.5, {"k": True}]),
        Outer.NestedError("deep"),
        StopIteration(3),
        ImportError("no", name="numpy", path="/x"),
        subprocess.CalledProcessError(2, ["ls", "-l"], "out", "err"),
        requests.ConnectionError("refused"),
        ToolError("inner", "tool", "id", "t", "trace"),
    ],
    ids=label,
)
def test_an_exception_of_json_is_built_again_whole(error: Exception) -> None:
    cause = raised_again(error).__cause__
    assert type(cause) is type(error)
    assert cause.args == error.args
    assert str(cause) == str(error)
    assert cause.__dict__ == error.__dict__
    assert not recorded(error).get("omitted")


def test_the_attributes_that_c_holds_survive() -> None:
    missing = raised_again(OSError(2, "x", "file")).__cause__
    assert type(missing) is FileNotFoundError
    assert (missing.errno, missing.strerror, missing.filename) == (2, "x", "file")
    imported = raised_again(ImportError("no", name="numpy")).__cause__
    assert isinstance(imported, ImportError)
    assert imported.name == "numpy"


def test_what_json_cannot_hold_is_left_out_by_name() -> None:
    response = requests.Response()
    response.status_code = 404
    failure = requests.HTTPError("404 Client Error", response=response)
    cause = raised_again(failure).__cause__
    assert type(cause) is requests.HTTPError
    assert str(cause) == "404 Client Error"
    assert not hasattr(cause, "response") or cause.response is None
    assert "response" in cause.__notes__[0]


def test_a_provider_s_error_keeps_its_status() -> None:
    request = requests_free_response(429)
    failure = openai.RateLimitError("slow down", response=request, body={"code": "limit"})
    cause = raised_again(failure).__cause__
    assert type(cause) is openai.RateLimitError
    assert (cause.status_code, cause.code, cause.message) == (429, "limit", "slow down")


def requests_free_response(status: int) -> Any:
    import httpx2

    return httpx2.Response(status, request=httpx2.Request("POST", "http://provider/v1"))


def test_an_exception_that_holds_a_lock_is_recorded() -> None:
    record = recorded(Holding(threading.Lock()))
    assert record["omitted"] == ["thing"]
    assert record["state"] == {"size": 3}
    cause = raised_again(Holding(threading.Lock())).__cause__
    assert type(cause) is Holding
    assert cause.size == 3


def test_one_that_cannot_speak_without_what_is_missing_is_not_built() -> None:
    error = raised_again(Needy(threading.Lock()))
    assert error.__cause__ is None
    assert "lock <unlocked" in error.message


@pytest.mark.parametrize(
    "error",
    [
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        ValueError(threading.Lock()),
        ValueError((1, 2)),
        ValueError({1: 2}),
        ValueError(float("nan")),
    ],
    ids=label,
)
def test_one_whose_arguments_json_cannot_hold_keeps_its_words(error: Exception) -> None:
    again = raised_again(error)
    assert again.message == str(error)
    assert again.__cause__ is None


def test_a_validation_error_keeps_its_words() -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        pydantic.TypeAdapter(int).validate_python("x")
    again = raised_again(caught.value)
    assert again.message == str(caught.value)
    assert again.error_type.endswith("ValidationError")


def test_a_group_comes_back_with_its_members() -> None:
    group = ExceptionGroup("two", [MyError(1, detail="a"), ExceptionGroup("in", [KeyError("k")])])
    again = raised_again(raised(group))
    assert "MyError: code 1: a; KeyError: 'k'" in again.message
    cause = again.__cause__
    assert isinstance(cause, ExceptionGroup)
    assert cause.message == "two"
    mine, inner = cause.exceptions
    assert isinstance(mine, MyError)
    assert mine.code == 1
    assert isinstance(inner, ExceptionGroup)
    assert isinstance(inner.exceptions[0], KeyError)


def test_a_member_that_cannot_be_built_is_a_tool_error_with_its_words() -> None:
    group = ExceptionGroup("one", [ValueError(threading.Lock())])
    cause = raised_again(group).__cause__
    assert isinstance(cause, ExceptionGroup)
    member = cause.exceptions[0]
    assert isinstance(member, ToolError)
    assert member.error_type == "builtins.ValueError"


def test_a_group_of_any_size_is_recorded_in_little() -> None:
    wide = ExceptionGroup("wide", [ValueError(i) for i in range(2_000)])
    deep: ExceptionGroup[Exception] = ExceptionGroup("deep", [ValueError(1)])
    for _ in range(200):
        deep = ExceptionGroup("deep", [deep])
    for group in (wide, deep):
        assert len(encode_failure(group)) < 200_000
        assert raised_again(group).message.startswith(group.message)


def test_an_exception_that_cannot_be_printed_is_recorded() -> None:
    record = recorded(raised(Mute()))
    assert record["message"] == "<Mute that cannot be printed>"
    assert "Mute" in record["traceback"]
    assert raised_again(Mute()).__cause__ is None


def test_an_exception_without_words_is_called_by_its_class() -> None:
    assert raised_again(ValueError()).message == "ValueError"


def test_lone_surrogates_are_replaced() -> None:
    text = encode_failure(raised(ValueError("a\ud800b")))
    text.encode()
    assert json.loads(text)["message"] == "a\ufffdb"


def test_huge_texts_are_cut() -> None:
    error = ValueError("é" * 10_000_000)
    error.more = ["x" * 60_000] * 100  # type: ignore[attr-defined]
    record = recorded(raised(error))
    assert len(record["message"].encode()) == 64 * 1024
    assert len(record["traceback"]) <= 16_000
    assert "raise error" in record["traceback"], "a long message pushed out the frames"
    assert record["traceback"].endswith("é...")
    assert record["omitted"] == ["more"]
    assert "args" not in record


def test_attributes_that_lose_themselves_are_left_out() -> None:
    error = ValueError("x")
    loop: list[object] = []
    loop.append(loop)
    error.loop = loop  # type: ignore[attr-defined]
    error.pair = (1, 2)  # type: ignore[attr-defined]
    assert recorded(error)["omitted"] == ["loop", "pair"]


@pytest.mark.parametrize(
    "name",
    [
        *("os.system", "builtins.eval", "builtins.int", "no_such_module.Error", "json.Missing"),
        *("x", "", "json.decoder.JSONDecoder.decode"),
        *(f"{__name__}.MyError.__init__", f"{__name__}.Outer"),
    ],
)
def test_a_record_builds_nothing_but_loaded_exceptions(name: str) -> None:
    record = {"message": "m", "type": name, "args": ["true"], "state": {"a": 1}}
    error = decode_failure(json.dumps(record), "t", "s")
    assert error.__cause__ is None
    assert error.message == "m"


def test_a_record_imports_nothing() -> None:
    import sys

    sys.modules.pop("this", None)
    decode_failure('{"message":"m","type":"this.Error","args":[]}', "t", "s")
    assert "this" not in sys.modules


@pytest.mark.parametrize(
    ("text", "message", "reason"),
    [
        ('{"message":"m","reason":"indeterminate"}', "m", "indeterminate"),
        ('{"reason":"indeterminate"}', "indeterminate", "indeterminate"),
        ('{"message":"","reason":"r"}', "r", "r"),
        ('{"code":7}', '{"code":7}', ""),
        ('"went wrong"', "went wrong", ""),
        ("[1,2]", "[1,2]", ""),
        ("7", "7", ""),
        ("null", "null", ""),
        (None, "null", ""),
        ('{"message":{"a":1}}', '{"message":{"a":1}}', ""),
        ("not json", "not json", ""),
    ],
)
def test_what_others_record_is_read(text: str | None, message: str, reason: str) -> None:
    error = decode_failure(text, "t", "s")
    assert (error.message, error.reason, error.tool_id, error.step_id) == (
        message,
        reason,
        "t",
        "s",
    )
    assert error.__cause__ is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
keys = st.sampled_from(["message", "type", "args", "state", "members", "omitted", "reason"])
types = st.sampled_from(["builtins.ValueError", "builtins.OSError", "builtins.ExceptionGroup"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(keys, json_values | types))
def test_no_record_makes_reading_fail(record: dict[str, Any]) -> None:
    error = decode_failure(json.dumps(record), "t", "s")
    assert type(error) is ToolError
    str(error.__cause__)


@given(st.text(), st.lists(st.text() | st.integers() | st.none()))
def test_any_words_survive(word: str, more: list[Any]) -> None:
    word = word.encode("utf-8", "ignore").decode()
    error = raised_again(ValueError(word))
    assert error.message == (word or "ValueError")
    cause = raised_again(ValueError(*more)).__cause__
    sound = all(not isinstance(item, str) or item.isprintable() for item in more)
    assert not sound or (cause is not None and list(cause.args) == more)


def test_a_result_that_cannot_be_stored_is_a_failure_that_shows_it() -> None:
    text = not_storable({"lock": threading.Lock()}, TypeError("result.lock: lock is not JSON"))
    record = json.loads(text)
    assert record["message"] == "ran, value not storable: result.lock: lock is not JSON"
    assert record["repr"].startswith("{'lock': <unlocked _thread.lock")
    assert decode_failure(text, "t", "s").message == record["message"]


def test_the_repr_of_a_result_is_short_and_never_in_the_way() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise OSError(os.strerror(5))

    assert json.loads(not_storable(Broken(), "p"))["repr"] == "<Broken without a repr>"
    assert len(json.loads(not_storable("é" * 9000, "p"))["repr"].encode()) <= 1024
    json.loads(not_storable("\ud800", "p"))["repr"].encode()
