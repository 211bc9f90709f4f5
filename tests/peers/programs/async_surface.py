"""Prints what the async SDK has, as a JSON list: its names, its methods, and their arguments.

An argument that may be left out has a ``=``.
"""

import inspect
import json

import rebuno
import rebuno.mcp


def arguments_of(name: str, function: object) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {
        f"{name}({one.name}{'' if one.default is one.empty else '='})"
        for one in parameters
        if one.name != "self"
    }


found = set(rebuno.__all__)
for name in ("Agent", "Client", "subagent", "resource", "step", "tool", "wrap_tool"):
    member = getattr(rebuno, name, None)
    if member is None:
        continue
    found |= arguments_of(name, member)
    if inspect.isclass(member):
        for method, function in vars(member).items():
            if inspect.isfunction(function) and not method.startswith("_"):
                found |= {f"{name}.{method}", *arguments_of(f"{name}.{method}", function)}
found |= {f"mcp.{name}" for name in dir(rebuno.mcp) if name.startswith("wrap_mcp")}
print(json.dumps(sorted(found)))
