"""``rebuno-sync demo``: run for real in a process of its own, and its judgement on bad evidence."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests

import rebuno_sync
from rebuno_sync.cli import demo, demo_inputs, passages
from rebuno_sync.cli.demo_bodies import Body
from rebuno_sync.cli.demo_promises import Attempt, Effect, Evidence, judge
from rebuno_sync.cli.demo_screen import Screen, clip
from rebuno_sync.cli.provider import Provider
from rebuno_sync.kernel import Kernel

SOURCE = Path(rebuno_sync.__file__).parent.parent
OF_THE_CALLER = {"OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "NO_COLOR", "COLUMNS"}
COMMAND = [sys.executable, "-W", "error", "-P", "-m", "rebuno_sync", "demo"]


@dataclass(frozen=True)
class Shown:
    """What one run of the command did."""

    code: int
    out: str
    err: str
    left: list[str]

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def effects(self, verb: str) -> list[str]:
        """The targets of the effects with that verb."""
        found = re.findall(rf"^  {verb:<9} ([a-z_]+)", self.out, re.MULTILINE)
        return [str(target) for target in found]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The caller's, without what the demo obeys; its temporary files go to ``folder``."""
    kept = {name: value for name, value in os.environ.items() if name not in OF_THE_CALLER}
    return {**kept, "PYTHONPATH": str(SOURCE), "TMPDIR": str(folder), **more}


def run_demo(folder: Path, *arguments: str, pace: str = "0", **more: str) -> Shown:
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    done = subprocess.run(
        [*COMMAND, *arguments, "--pace", pace],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env=environment(temporary, **more),
    )
    left = [path.name for path in temporary.iterdir()]
    return Shown(done.returncode, done.stdout, done.stderr, left)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return run_demo(tmp_path_factory.mktemp("demo"))


def test_with_nothing_else_it_ends_well(shown: Shown) -> None:
    """Run in a pipe with no argument, it exits with 0, prints no error and leaves no file."""
    assert (shown.code, shown.err, shown.left) == (0, "", [])
    assert shown.out.count("\n  ok ") == 7
    assert "BROKEN" not in shown.out


def test_the_first_process_is_cut_down_in_a_model_question(shown: Shown) -> None:
    """The kill is a SIGKILL while the model is asked, after several effects have run."""
    assert shown.effects("cut down") == ["extractive"]
    assert "SIGKILL to process" in shown.out
    assert "The first process was ended by SIGKILL, 6 effects in." in shown.out


def test_the_second_process_replays_before_it_goes_on(shown: Shown) -> None:
    """What ran in the first process is replayed in the second, and only the cut down one again."""
    replayed = ["clock", "read_text", "find_passages", "extractive", "read_text", "find_passages"]
    rest = ["read_text", "find_passages", "extractive", "extractive", "write_report"]
    assert shown.effects("replayed") == replayed
    assert shown.effects("ran again") == ["extractive"]
    assert shown.effects("ran") == [*replayed, *rest]


def test_it_answers_from_the_packaged_texts(shown: Shown) -> None:
    """The answer comes from the documentation that the package brings along."""
    packaged = " ".join(path.read_text("utf-8") for path in demo_inputs.packaged())
    answer = re.search(r"\nAnswer\n(.*?)\n\n", shown.out, re.DOTALL)
    assert answer is not None
    [_question, *lines] = answer[1].splitlines()
    said = passages.sentences(" ".join(line.strip() for line in lines))
    assert said
    assert all(sentence in " ".join(packaged.split()) for sentence in said)


def test_it_shows_the_event_log(shown: Shown) -> None:
    """The log has both attempts, and ends with the completion."""
    for entry in ("dispatch.acked  attempt 1", "dispatch.acked  attempt 2", "execution.completed"):
        assert entry in shown.out


def test_in_a_pipe_it_is_plain_and_80_columns_wide(shown: Shown) -> None:
    """Without a terminal there is no escape sequence, and no line of more than 80 columns."""
    assert "\x1b" not in shown.out
    assert "\r" not in shown.out
    assert max(map(len, shown.lines)) <= 80


@pytest.fixture(scope="module")
def of_one_sentence(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shown, Path]:
    """On a narrow terminal, with a file of one sentence; the folder that was kept."""
    folder = tmp_path_factory.mktemp("one")
    (folder / "one.txt").write_text("Hello world.")
    return run_demo(folder, "one.txt", "--keep", "kept", COLUMNS="40"), folder / "kept"


def test_it_fits_a_narrow_terminal(of_one_sentence: tuple[Shown, Path]) -> None:
    """With COLUMNS=40 no line is longer, and the verdicts are all there."""
    narrow, _ = of_one_sentence
    assert max(map(len, narrow.lines)) <= 40
    assert narrow.out.count("\n  ok ") == 7


def test_one_short_file_is_enough(of_one_sentence: tuple[Shown, Path]) -> None:
    """With a single sentence the agent makes the same model call twice: both are recorded."""
    shown, _ = of_one_sentence
    assert (shown.code, shown.err) == (0, "")
    assert shown.effects("ran again") + shown.effects("ran")[-2:] == [
        *("extractive", "extractive", "write_report")
    ]


def test_what_is_kept_can_be_looked_at(of_one_sentence: tuple[Shown, Path]) -> None:
    """With --keep the report and the kernel's file stay, and the execution is in it."""
    _, kept = of_one_sentence
    report = (kept / "report.md").read_text()
    with Kernel(kept / "kernel.db") as kernel:
        execution = kernel.find("demo", "demo")
        assert execution is not None
        steps = {step.target: step for step in kernel.list_steps(execution.id)}
    assert execution.output["answer"] == "Hello world."
    assert "Hello world." in report
    assert report.startswith(steps["clock"].result)


@pytest.mark.parametrize(("no_colour", "coloured"), [("", True), ("1", False)])
def test_colours_are_for_terminals_that_want_them(
    no_colour: str, coloured: bool, tmp_path: Path
) -> None:
    """On a terminal verdicts have a colour, unless NO_COLOR is set."""
    reading, writing = pty.openpty()
    with os.fdopen(reading, "rb", buffering=0) as ours, os.fdopen(writing, "w") as terminal:
        screen = Screen.of(terminal, {"TERM": "xterm", "NO_COLOR": no_colour})
        screen.begin("read_text", "path=a.txt")
        screen.effect("ran", "read_text", "path=a.txt", 0.2)
        shown = ours.read(4096).decode()
        while not shown.endswith("\r\n"):
            shown += ours.read(4096).decode()
    assert ("\x1b[32m" in shown) is coloured
    assert "200 ms" in shown


@pytest.mark.slow
def test_given_files_are_read(tmp_path: Path) -> None:
    """Files on the command line are read instead, each once, a long one in part and said so."""
    short, long = tmp_path / "short.txt", tmp_path / "long.txt"
    short.write_text("The parrot is blue. It sits on a wall.")
    long.write_text("Many words about nothing. " * 10_000)
    given = run_demo(
        tmp_path, "short.txt", "long.txt", str(short), "--question", "Where is the parrot?"
    )
    assert (given.code, given.err) == (0, "")
    assert (given.effects("ran") + given.effects("replayed")).count("read_text") == 3
    assert "long.txt: 260,000 bytes; the demo reads the first 65,536" in given.out
    assert "The parrot is blue." in given.out


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "text.txt cannot be read: No such file or directory"),
        (b"", "text.txt is empty; give a file with some text"),
        (b" \n ", "text.txt is empty; give a file with some text"),
        (b"a\0b", "text.txt is not a UTF-8 text (it contains NUL bytes); give a text file"),
        (b"\xff\xfe", "text.txt is not a UTF-8 text"),
    ],
    ids=["missing", "empty", "blank", "binary", "other-encoding"],
)
def test_a_file_that_is_no_text_is_named(
    content: bytes | None, complaint: str, tmp_path: Path
) -> None:
    """An unusable file is named with the cause before anything is done."""
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(demo_inputs.UnusableText) as caught:
        demo_inputs.check([str(path)])
    assert complaint in str(caught.value)


def test_other_things_than_files_are_named(tmp_path: Path) -> None:
    """A folder, a device, a loop of links and too many files are refused, each with its cause."""
    (tmp_path / "loop").symlink_to("loop")
    several = [str(tmp_path / str(number)) for number in range(21)]
    for given, complaint in [
        ([str(tmp_path)], "is a folder"),
        (["/dev/zero"], "is not a regular file"),
        ([str(tmp_path / "loop")], "cannot be read"),
        (several, "21 files are too many"),
    ]:
        with pytest.raises(demo_inputs.UnusableText, match=complaint):
            demo_inputs.check(given)


def test_a_character_at_the_cap_is_left_out_whole(tmp_path: Path) -> None:
    """A long file is cut between characters, not within one."""
    path = tmp_path / "long.txt"
    path.write_text("x" + "é" * demo_inputs.LARGEST_BYTES, "utf-8")
    text = demo_inputs.read_capped(path)
    assert set(text) == {"x", "é"}
    assert len(text.encode()) == demo_inputs.LARGEST_BYTES - 1


def test_bad_usage_ends_with_2(tmp_path: Path) -> None:
    """A missing file, a full folder to keep and an impossible pace exit with 2, on stderr only."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for arguments, pace, complaint in [
        (["missing.txt"], "0", "error: missing.txt cannot be read: No such file"),
        (["--keep", "full"], "0", "--keep full is not empty; name a new folder"),
        (["--question", " "], "0", "the question is empty"),
        ([], "soon", "'soon' is no number of seconds"),
    ]:
        refused = run_demo(tmp_path, *arguments, pace=pace)
        assert (refused.code, refused.out) == (2, "")
        assert complaint in refused.err


@pytest.mark.slow
def test_the_working_directory_is_not_imported_from(tmp_path: Path) -> None:
    """A file of the user's that is called like a module of Python's or of ours does no harm."""
    for name in ("json.py", "requests.py", "rebuno_sync.py"):
        (tmp_path / name).write_text("raise SystemExit('imported from the working directory')")
    assert run_demo(tmp_path).code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_a_demo_that_is_stopped_leaves_no_process(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    """Ctrl-C, SIGTERM or even SIGKILL of the demo ends its child too; the first two tidy up."""
    slow = "10" if number != signal.SIGKILL else "0.5"
    process = subprocess.Popen(
        [*COMMAND, "--pace", slow],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )
    assert process.stdout is not None
    while not process.stdout.readline().startswith("First process"):
        assert process.poll() is None
    process.send_signal(number)
    # The child shares stderr, so its end is the end of both.
    _, errors = process.communicate(timeout=20)
    assert process.returncode == code
    assert "Traceback" not in errors
    if number != signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_ends_it(tmp_path: Path) -> None:
    """In a pipe whose reader has gone (``| head``) it ends at once, silently, and tidies up."""
    with subprocess.Popen(
        [*COMMAND, "--pace", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(30)
    assert (process.returncode, errors, list(tmp_path.iterdir())) == (141, b"", [])


class Endpoint:
    """Somebody else's provider: answers every question with ``status`` and the same words."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.seen: list[tuple[str, str | None, Any]] = []
        self.url = ""


@contextmanager
def endpoint(status: int = 200) -> Iterator[Endpoint]:
    state = Endpoint(status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.seen.append((self.path, self.headers["Authorization"], body))
            message = {"role": "assistant", "content": "Forty-two."}
            answer = {"choices": [{"message": message}]}
            payload = json.dumps(answer if status == 200 else {"error": "bad key"}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}/v1/"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield state
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_with_a_key_the_real_provider_is_asked(tmp_path: Path) -> None:
    """OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL decide who is asked, for what, as whom."""
    (tmp_path / "one.txt").write_text("Hello world.")
    with endpoint() as there:
        asked = run_demo(
            tmp_path,
            "one.txt",
            OPENAI_API_KEY="sk-secret",
            OPENAI_BASE_URL=there.url,
            OPENAI_MODEL="some-model",
        )
    assert (asked.code, asked.err) == (0, "")
    assert "Forty-two." in asked.out
    assert "sk-secret" not in asked.out
    assert len(there.seen) in (2, 3)  # The kill may come before the request has left.
    for path, authorization, body in there.seen:
        assert (path, authorization) == ("/v1/chat/completions", "Bearer sk-secret")
        assert body["model"] == "some-model"
        assert [message["role"] for message in body["messages"]] == ["system", "user"]


@pytest.mark.slow
def test_a_provider_that_refuses_is_reported(tmp_path: Path) -> None:
    """When the provider refuses, the demo exits with 1 and says what to check."""
    (tmp_path / "one.txt").write_text("Hello world.")
    with endpoint(401) as there:
        refused = run_demo(
            tmp_path, "one.txt", OPENAI_API_KEY="sk-secret", OPENAI_BASE_URL=there.url
        )
    assert refused.code == 1
    assert "HTTP 401" in refused.err
    assert "Check OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL" in refused.err
    assert "sk-secret" not in refused.out + refused.err
    assert refused.left == []


@pytest.mark.slow
def test_without_openais_package_it_asks_by_hand(tmp_path: Path) -> None:
    """The demo needs no more than the package itself, and promises the same."""
    (tmp_path / "one.txt").write_text("Hello world.")
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import sys\nsys.modules['openai'] = None\n")
    shown = run_demo(tmp_path, "one.txt", PYTHONPATH=f"{site}{os.pathsep}{SOURCE}")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.count("\n  ok ") == 7


QUESTION = {"model": "m", "messages": [{"role": "user", "content": "Who rings?\nA bell rings."}]}


def test_the_provider_speaks_chat_completions() -> None:
    """The demo's provider answers a chat completion, the same each time, and counts."""
    with Provider() as provider:
        url = provider.url + "/chat/completions"
        answers = [requests.post(url, json=QUESTION, timeout=10).json() for _ in range(2)]
        assert provider.requests == 2
    assert answers[0] == answers[1]
    assert answers[0]["choices"][0]["message"] == {"role": "assistant", "content": "A bell rings."}


def test_the_provider_refuses_what_it_does_not_know() -> None:
    """Another path is a 404 and another body a 400; neither counts as a question."""
    with Provider() as provider:
        assert requests.post(provider.url + "/models", json={}, timeout=10).status_code == 404
        for body in (b"", b"[]", b"{}", b'{"model": "m", "messages": []}', b"\xff"):
            url = provider.url + "/chat/completions"
            assert requests.post(url, data=body, timeout=10).status_code == 400
        assert provider.requests == 0


def test_the_held_question_is_never_answered() -> None:
    """The question to be held has arrived when ``await_held`` returns, and gets no answer."""
    lost: list[Exception] = []

    def ask(url: str) -> None:
        try:
            requests.post(url, json=QUESTION, timeout=10)
        except requests.ConnectionError as error:
            lost.append(error)

    with Provider() as provider:
        provider.hold(1)
        asking = threading.Thread(target=ask, args=(provider.url + "/chat/completions",))
        asking.start()
        assert provider.await_held(10)
        assert provider.requests == 1
    asking.join(10)
    assert len(lost) == 1


def test_the_best_passages_share_the_most_words() -> None:
    """Of pieces that share words with the question the best are taken, in their own order."""
    pieces = ["Nothing here.", "A lease runs out.", "The process holds a lease.", "The end."]
    assert passages.best(pieces, "Which process holds the lease?", 2) == pieces[1:3]
    assert passages.best(pieces, "?", 1) == pieces[:1]


def test_headings_are_no_paragraphs() -> None:
    """A Markdown heading is left out; lines of one paragraph are joined."""
    assert passages.paragraphs("# Title\n\nOne\ntwo.\n\n\nThree.\n") == ["One two.", "Three."]


def test_a_line_is_cut_by_columns() -> None:
    """Wide characters take two columns, and what a terminal would obey is not passed on."""
    assert clip("日本語日本語", 9) == "日本語..."
    assert clip("a\x1b[31mb\nc", 20) == "a [31mb c"
    assert clip("exactly", 7) == "exactly"


# -- The judgement. Good evidence, and one thing wrong at a time.


def effect(step: str, target: str, how: str) -> Effect:
    return Effect(step, f"{target}:{step}", target, how, f"value of {step}")


def bodies(attempt: str, *effects: Effect) -> tuple[Body, ...]:
    return tuple(Body(attempt, effect.call, effect.target) for effect in effects)


CLOCK, READ = effect("s1", "clock", "ran"), effect("s2", "read_text", "ran")
ASK, WRITE = effect("s3", "extractive", "ran"), effect("s4", "write_report", "ran")
REPLAYED = tuple(replace(done, how="replayed") for done in (CLOCK, READ))
EVENTS = (
    ("dispatch.acked", ""),
    ("dispatch.acked", ""),
    *(("step.succeeded", done.step_id) for done in (CLOCK, READ, ASK, WRITE)),
    ("execution.completed", ""),
)
GOOD = Evidence(
    killed=Attempt(-9, (CLOCK, READ), bodies("first", CLOCK, READ, ASK), in_flight="extractive"),
    resumed=Attempt(0, (*REPLAYED, ASK, WRITE), bodies("second", ASK, WRITE), output="42"),
    undisturbed=Attempt(
        0, (CLOCK, READ, ASK, WRITE), bodies("third", CLOCK, READ, ASK, WRITE), output="42"
    ),
    model="extractive",
    requests=3,
    events=EVENTS,
    reports=("42\n", "42\n"),
)


def test_good_evidence_keeps_every_promise() -> None:
    """Nothing is called broken that was as promised."""
    assert [promise.broken for promise in judge(GOOD)] == [""] * 7


def test_without_a_provider_of_its_own_there_is_less_to_judge() -> None:
    """With somebody else's provider, requests and another answer are not held against it."""
    foreign = replace(GOOD, undisturbed=None, requests=None, reports=("42\n",))
    assert [promise.broken for promise in judge(foreign)] == [""] * 5


def killed(**changes: Any) -> Evidence:
    return replace(GOOD, killed=replace(GOOD.killed, **changes))


def resumed(**changes: Any) -> Evidence:
    return replace(GOOD, resumed=replace(GOOD.resumed, **changes))


OTHER_VALUE = replace(REPLAYED[1], value="another")
TAMPERED: dict[str, tuple[Evidence, str]] = {
    "it ended by itself": (killed(exit_code=0), "its exit code was 0"),
    "nothing in flight": (
        killed(in_flight="", bodies=bodies("first", CLOCK, READ)),
        "no effect was in flight",
    ),
    "killed too early": (killed(effects=()), "not half way"),
    "resume failed": (resumed(exit_code=1), "its exit code was 1"),
    "ran again": (
        resumed(effects=(CLOCK, READ, ASK, WRITE), bodies=bodies("x", CLOCK, READ, ASK, WRITE)),
        "0 were replayed, not the 2",
    ),
    "ran too soon": (
        resumed(effects=(REPLAYED[0], ASK, REPLAYED[1], WRITE)),
        "an effect ran before all had been replayed",
    ),
    "another value": (
        resumed(effects=(REPLAYED[0], OTHER_VALUE, ASK, WRITE)),
        "another value was replayed for read_text",
    ),
    "replayed, but the body ran": (
        resumed(bodies=bodies("second", CLOCK, ASK, WRITE)),
        "the second process did not record each result",
    ),
    "two cut down": (
        killed(bodies=bodies("first", CLOCK, READ, ASK, ASK)),
        "results of extractive were not recorded",
    ),
    "another one cut down": (killed(in_flight="read_text"), "results of extractive"),
    "never ran": (resumed(bodies=bodies("second", WRITE)), "4 bodies ran, not 5: see extractive"),
    "written twice": (resumed(bodies=bodies("second", ASK, WRITE, WRITE)), "it ran 2 times"),
    "no report": (replace(GOOD, reports=("", "")), "the file is missing or empty"),
    "asked once more": (replace(GOOD, requests=4), "it counted 4"),
    "another answer": (resumed(output="43"), "its answer was another one"),
    "another report": (replace(GOOD, reports=("42\n", "43\n")), "its report was another one"),
    "one attempt in the log": (replace(GOOD, events=EVENTS[1:]), "1 attempts"),
    "a success missing": (
        replace(GOOD, events=EVENTS[:-2] + EVENTS[-1:]),
        "3 successes of 4 effects",
    ),
    "a failure in the log": (
        replace(GOOD, events=(*EVENTS, ("step.failed", "s3"))),
        "1 failures",
    ),
    "no completion": (replace(GOOD, events=EVENTS[:-1]), "0 failures"),
}


@pytest.mark.parametrize("wrong", TAMPERED)
def test_what_was_not_as_promised_is_found(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One thing that is not as promised breaks a promise, is shown with it, and exits with 1."""
    evidence, seen = TAMPERED[wrong]
    promises = judge(evidence)
    assert seen in " ".join(promise.broken for promise in promises)
    printed = io.StringIO()
    code = demo.show(Screen(printed, 200, colour=False, live=False), promises)
    assert code == 1
    assert f"Instead: {next(p.broken for p in promises if not p.kept)}" in printed.getvalue()
    assert "broken" in capsys.readouterr().err


@pytest.mark.slow
def test_a_broken_promise_ends_the_command_with_1(tmp_path: Path) -> None:
    """A body that ran once more than it may, seen on the disk alone, makes the command fail."""
    with subprocess.Popen(
        [*COMMAND, "--pace", "0.1", "--keep", "kept"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(tmp_path),
    ) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("Second process"):
            assert process.poll() is None
        with (tmp_path / "kept" / "bodies.jsonl").open("a") as ledger:
            ledger.write('["second", "write_report:0", "write_report"]\n')
        printed, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "BROKEN write_report, which is at_most_once" in printed
    assert "Instead: it ran 2 times" in " ".join(printed.split())
    assert errors == "rebuno-sync demo: 2 promises of 7 broken\n"


def test_every_promise_can_be_broken() -> None:
    """No check is so weak that nothing breaks it."""
    broken = {
        number
        for evidence, _ in TAMPERED.values()
        for number, promise in enumerate(judge(evidence))
        if not promise.kept
    }
    assert broken == set(range(7))


Command = Callable[[list[str]], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    def call(arguments: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND[:-1], *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            env=environment(tmp_path),
        )

    return call


def test_the_command_says_what_it_can_do(command: Command) -> None:
    """``--version`` and ``--help`` exit with 0; no command at all prints the help, with 2."""
    version = command(["--version"])
    assert (version.returncode, version.stdout.startswith("rebuno-sync ")) == (0, True)
    for arguments in (["--help"], ["demo", "--help"]):
        asked = command(arguments)
        assert asked.returncode == 0
        assert "demo" in asked.stdout
    assert command([]).returncode == 2
    assert "invalid choice" in command(["dance"]).stderr
