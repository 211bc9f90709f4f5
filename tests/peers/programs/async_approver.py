"""Decides, by the async SDK's client, on the one approval there is; prints what it saw as JSON."""

import asyncio
import json
import sys

import rebuno

given = json.loads(sys.argv[1])


async def main() -> dict:
    async with rebuno.Client(given["url"], given["token"]) as client:
        [approval] = await client.list_approvals()
        same = await client.get_approval(approval.id)
        await client.grant_approval(approval.id, decided_by="alice", rationale="fine")
        said = {
            "id": approval.id,
            "same": same == approval,
            "message": approval.message,
            "left": await client.list_approvals(),
        }
        try:
            await client.deny_approval(approval.id, decided_by="bob", rationale="no")
        except rebuno.ConflictError as error:
            said["again"] = error.status_code
    return said


print(json.dumps(asyncio.run(main())))
