"""A Typer command that starts fast.

Typer turns every parameter into its type through a pydantic adapter, and loading pydantic takes longer than all of
``feasible``. Options of this command line are text, paths, whole numbers, switches and choices, which need no adapter.
"""

from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from dualplan.cli.options import PICTURES


class FastCommand(TyperCommand):
    """A command whose plain parameters are converted without pydantic; others go Typer's way.

    ``--plot`` shows a plot in the terminal. Where a command has ``--plot-file`` as well, ``--plot FILE.svg`` is short
    for both.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the arguments, a picture's name after --plot as that of the plot.

        What is missing is said with the example of the help.
        """
        if any("--plot-file" in parameter.opts for parameter in self.params):
            args = _with_plot_file(args)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if hasattr(error, "param_type") and self.epilog:  # that of missing ones alone
                error.message = self.epilog
            raise

    def get_params(self, ctx: Any) -> Any:
        """All parameters, that of --help included."""
        return _converted_plainly(super().get_params(ctx))

    def get_short_help_str(self, limit: int = 45) -> str:
        """The summary, whole: on a narrow terminal it takes more lines, and nothing is cut."""
        return self.short_help or super().get_short_help_str(limit)


class FastGroup(TyperGroup):
    """A group of commands, likewise."""

    def get_params(self, ctx: Any) -> Any:
        """All parameters, that of --help included."""
        return _converted_plainly(super().get_params(ctx))

    def get_short_help_str(self, limit: int = 45) -> str:
        """The summary, whole."""
        return self.short_help or super().get_short_help_str(limit)


def _with_plot_file(args: list[str]) -> list[str]:
    result: list[str] = []
    for before, word in zip(["", *args], args, strict=False):
        if before == "--plot" and word.lower().endswith(PICTURES):
            result.append("--plot-file")
        result.append(word)
    return [f"--plot-file={word[7:]}" if word.startswith("--plot=") else word for word in result]


def _converted_plainly(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
        kind = get_args(kind)[0] if get_origin(kind) is list else kind
        # before Typer 0.29 there are no adapters, and no such attribute
        if getattr(parameter, "_runtime_param", kind) is None and _is_plain(kind):
            parameter._runtime_param = _Plain(kind)
    return parameters


def _is_plain(kind: Any) -> bool:
    return kind in (str, Path, int, bool) or (isinstance(kind, type) and issubclass(kind, Enum))


class _Plain:
    """Conversion of one parameter, or of each of its values."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if param.multiple or param.nargs == -1:
            return tuple(self._one(item, param, ctx) for item in value or ())
        return None if value is None else self._one(value, param, ctx)

    def _one(self, value: Any, param: Any, ctx: Any) -> Any:
        if isinstance(value, self.kind):
            return value
        try:
            return self.kind(value)
        except ValueError:
            if issubclass(self.kind, Enum):
                known = ", ".join(str(choice.value) for choice in self.kind)
                what = f"{value!r} is not one of {known}."
            else:
                what = f"{value!r} is not a whole number."
            raise typer.BadParameter(what, ctx=ctx, param=param) from None
