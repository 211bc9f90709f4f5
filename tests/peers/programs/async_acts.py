"""An agent of the async SDK that acts as each execution's input says, until it is killed.

Runs in an environment that has the SDK and not this project; both published releases take it. What
only the newer one knows is asked for when an act needs it.
"""

import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import rebuno
import rebuno.mcp
from support.effect_log import EffectLog

given = json.loads(sys.argv[1])
log = EffectLog(given["log"])
ACTS = {}


def act(function):
    ACTS[function.__name__] = function
    return function


async def handler(act: str, given: dict | None = None) -> object:
    return await ACTS[act](**(given or {}))


@act
async def say(words: object) -> object:
    return {"said": words, "id": rebuno.execution().id}


@act
async def use(target: str, times: int = 1, idempotency: str = "safe_to_retry") -> list:
    """Call a tool that is made from a schema."""

    async def invoke(args: dict) -> str:
        return f"{args['text']} {log.append(target)}"

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    tool = rebuno.wrap_tool(target, invoke, args_schema=schema, idempotency=idempotency)
    said = []
    for _ in range(times):
        try:
            said.append(await tool(text="x"))
        except rebuno.RateLimited as error:
            said.append(f"limited: {error}")
    return said


@act
async def use_together(targets: list) -> list:
    tools = [rebuno.tool(target)(_log_it) for target in targets]
    return await asyncio.gather(*(tool(it, 0) for tool, it in zip(tools, targets, strict=True)))


@act
async def use_freely(target: str, times: int = 1) -> list:
    """As ``use``, with nothing caught and one by one."""
    tool = rebuno.tool(target)(_log_it)
    return [await tool(target, number) for number in range(times)]


async def _log_it(target: str, number: int) -> str:
    return log.append(target)


@act
async def local(name: str) -> str:
    return await rebuno.step(name, lambda: log.append(name))


@act
async def mcp(name: str) -> object:
    """Call a tool of an MCP server, which is not there."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    listed = SimpleNamespace(name=name, description="Adds.", inputSchema=schema)

    async def call(name: str, arguments: dict) -> object:
        content = {"called": name, **arguments}
        return SimpleNamespace(structuredContent=content, structured_content=content)

    [tool] = rebuno.mcp.wrap_mcp_tools([listed], call=call, prefix="far")
    return await tool(a=1)


@act
async def ask(url: str, questions: list, stream: bool = False) -> list:
    """Ask a model by the recording client, whose refusals are answers."""
    said = []
    async with rebuno.http_client() as client:
        for question in questions:
            body = {"model": "m", "messages": [question]} | ({"stream": True} if stream else {})
            answer = await client.post(url + "/chat/completions", json=body)
            said.append([answer.status_code, answer.text])
    return said


@act
async def ask_or_fail(url: str, questions: list) -> list:
    """As providers' clients do: an error status is an exception."""
    async with rebuno.http_client() as client:
        for question in questions:
            body = {"model": "m", "messages": [question]}
            answer = await client.post(url + "/chat/completions", json=body)
            if answer.status_code >= 400:
                raise ValueError(answer.text)
    return ["no error"]


@act
async def linger() -> None:
    it = rebuno.execution().id
    log.append(f"began {it}")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        log.append(f"cut short {it}")
        raise


# -- what the newer release knows


@act
async def turn(words: str, output: object = None) -> object:
    before = await rebuno.previous()
    state = [*(before or []), words]
    return rebuno.Result(output={"before": before}, state=state)


@act
async def delegate(to: str, inputs: list, session: str = "") -> list:
    """Ask subagents, each in a tool of its own, at once."""

    async def body(number: int) -> object:
        return await rebuno.subagent(to, inputs[number], session=session, client=operator)

    tool = rebuno.tool("delegate")(body)
    async with rebuno.Client(given["url"], given["token"]) as operator:
        return await asyncio.gather(*map(tool, range(len(inputs))))


class Folders:
    """Environments that are folders; a capture is a copy."""

    driver_id = "folders"
    coverage_reuse = True

    def __init__(self) -> None:
        self.configuration = {"kind": "plain"}

    async def create(self, checkpoint_ref: str | None) -> tuple:
        log.append("create", checkpoint_ref or "nothing")
        path = tempfile.mkdtemp(dir=given["folder"])
        if checkpoint_ref and not Path(checkpoint_ref).exists():
            raise rebuno.CheckpointUnavailable(checkpoint_ref)
        if checkpoint_ref:
            shutil.copytree(checkpoint_ref, path, dirs_exist_ok=True)
        return Path(path), {"path": path}

    async def open(self, binding: dict) -> Path:
        log.append("open")
        return Path(binding["path"])

    async def checkpoint(self, folder: Path) -> str:
        copy = tempfile.mkdtemp(dir=given["folder"])
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        return copy


@act
async def draft(names: list, every_steps: int = 1) -> list:
    policy = rebuno.CheckpointPolicy(every_steps=every_steps)
    folder = await rebuno.resource("desk", driver=Folders(), checkpoints=policy)

    async def write(name: str) -> None:
        (folder / name).write_text(log.append("write"))

    write = rebuno.tool("write", resources=["desk"])(write)
    for name in names:
        await write(name)
    return sorted(path.name for path in folder.iterdir())


more = {"description": "Acts.", "output_schema": {"type": "object"}} if given["described"] else {}
agent = rebuno.Agent(given["agent"], secret=given["secret"], base_url=given["url"], **more)
agent.run(handler, host="127.0.0.1", port=given["port"])
