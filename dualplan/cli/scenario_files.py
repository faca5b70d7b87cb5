"""Commands over several scenario files, each with the same flags laid over it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from dualplan.cli.scenario_flags import ScenarioFlags, scenario_command

FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="SCENARIO", help="Scenario files (see: dualplan init).", show_default=False),
]


def scenarios_command(function: Callable[..., None]) -> Callable[..., None]:
    """As scenario_command, for any number of files: its parameter ``flags`` is a list, one entry a file; of no file one
    entry with the flags alone.
    """
    own = set(inspect.signature(function).parameters) - {"flags"}
    template = scenario_command(function)
    parameters = dict(inspect.signature(template).parameters)
    files = parameters.pop("file").replace(name="files", annotation=FilesArgument)

    def command(**values: Any) -> None:
        given = values.pop("files") or [None]
        rest = {name: values.pop(name) for name in own}
        function([ScenarioFlags({**values, "file": file}) for file in given], **rest)

    command.__signature__ = inspect.Signature([files, *parameters.values()])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in (files, *parameters.values())}
    command.__doc__, command.__name__ = function.__doc__, function.__name__
    return command
