"""What an operator asks by the async SDK's client; prints the answers as JSON."""

import asyncio
import json
import sys

import rebuno

given = json.loads(sys.argv[1])


async def main() -> dict:
    said = {}
    async with rebuno.Client(given["url"], given["token"]) as client:
        created = await client.create(given["agent"], {"name": "ada"})
        said["created"] = [created.id, created.agent_id, str(created.status)]
        execution = await client.get(created.id)
        for _ in range(1000):
            if str(execution.status) not in ("pending", "running"):
                break
            await asyncio.sleep(0.02)
            execution = await client.get(created.id)
        said["ended"] = [execution.id, str(execution.status), execution.output]
        events = await client.events(created.id)
        said["events"] = [event.type for event in events]
        later = await client.events(created.id, after_seq=2, limit=2)
        said["later"] = [event.type for event in later]
        steps = await client.list_steps(created.id)
        said["steps"] = sorted([step.target, str(step.status)] for step in steps)
        one = await client.get_step(created.id, steps[0].step_id)
        said["step"] = [one.step_id == steps[0].step_id, one.target == steps[0].target]
        said["terminal"] = len(await client.list_steps(created.id, status="terminal"))
        waiting = await client.create(given["idle_agent"])
        if given["has_keys"]:
            keyed = [
                await client.create(given["idle_agent"], idempotency_key="one") for _ in range(2)
            ]
            said["keyed"] = len({execution.id for execution in keyed})
        said["open steps"] = await client.list_steps(waiting.id)
        await client.cancel(waiting.id)
        said["cancelled"] = str((await client.get(waiting.id)).status)
        try:
            await client.cancel(waiting.id)
        except rebuno.ConflictError as error:
            said["again"] = error.status_code
        try:
            await client.get("01900000-0000-7000-8000-000000000000")
        except rebuno.NotFoundError as error:
            said["missing"] = error.status_code
    try:
        async with rebuno.Client(given["url"], "wrong") as stranger:
            await stranger.get(created.id)
    except rebuno.UnauthorizedError as error:
        said["stranger"] = error.status_code
    return said


print(json.dumps(asyncio.run(main())))
