"""The command line: which commands there are, exit codes, closed pipes, interruptions.

The module of a command is imported when the command is asked for, and imports what is heavy when it runs.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from dualplan import __version__
from dualplan.cli.command import FastCommand, FastGroup
from dualplan.cli.options import ClosedPipeError, print_text
from dualplan.errors import DualplanError

COMMANDS: dict[str, str] = {
    "feasible": "feasible.feasible",
    "simulate": "simulate.simulate",
    "sweep": "sweep.sweep",
    "plan": "plan.plan",
    "explain": "explain.explain",
    "report": "report.report",
    "compare": "compare.compare",
    "ratio": "ratio.ratio",
    "validate": "validate.validate",
    "calibrate": "calibrate.calibrate",
    "flow": "flow.flow",
    "qos": "qos.qos",
    "init": "scenario.init",
}
"""The commands, each with the module of ``dualplan.cli`` and the function that it is."""

GROUPS: dict[str, tuple[str, dict[str, str]]] = {
    "size": (
        "Storage for a load: working set, servers, load or recompute, a DRAM pool, a remote site.",
        {
            "working-set": "size.working_set",
            "store": "size.store",
            "break-even": "size.break_even",
            "pool": "size.pool",
            "wan": "size.wan",
        },
    ),
    "scenario": ("Scenario files.", {"schema": "scenario.schema"}),
    "hardware": (
        "Hardware profiles.",
        {
            "list": "hardware.list_hardware",
            "show": "hardware.show",
            "schema": "hardware.schema",
            "import": "hardware_import.import_hardware",
        },
    ),
    "model": ("Models.", {"list": "model.list_models", "show": "model.show"}),
    "workload": ("Workloads.", {"list": "workload.list_workloads", "show": "workload.show"}),
    "trace": (
        "Serving traces.",
        {
            "inspect": "trace.inspect",
            "convert": "trace.convert",
            "fit": "trace_fit.fit",
            "generate": "trace_fit.generate",
        },
    ),
}


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code.

    0 yes or done, 1 unexpected failure, 2 usage, 3 bad input, 4 infeasible, 5 no convergence, 130 interrupted.
    """
    _prepare_streams()
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
    except (BrokenPipeError, ClosedPipeError):
        return _closed_pipe()
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except DualplanError as error:
        if os.environ.get("DUALPLAN_DEBUG"):
            raise
        return _fail(str(error), error.exit_code)
    except RecursionError:
        return _fail("the input is nested too deeply", 3)
    except (ZeroDivisionError, OverflowError, FloatingPointError):
        if os.environ.get("DUALPLAN_DEBUG"):
            raise
        return _fail("a value of the input is too large or too small to compute with", 3)
    except MemoryError:
        return _fail("out of memory", 1)
    except OSError as error:
        if os.environ.get("DUALPLAN_DEBUG"):
            raise
        # any question about a name may find it too long for the file system
        code = 3 if error.errno == errno.ENAMETOOLONG else 1
        return _fail(f"{str(error.filename or 'standard output')[:200]}: {error.strerror or error}", code)
    except Exception as error:
        if os.environ.get("DUALPLAN_DEBUG"):
            raise
        return _fail(f"unexpected {type(error).__name__}: {error} (run with --debug for the traceback)", 1)
    return code


def _version(wanted: bool) -> None:
    if wanted:
        print_text(f"dualplan {__version__}\n")
        raise typer.Exit


def _main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    color: Annotated[str, typer.Option("--color", metavar="auto|always|never", help="Colour of the output.")] = "auto",
) -> None:
    """Plan prefill/decode inference clusters that load KV-cache from storage on either side."""
    if color not in ("auto", "always", "never"):
        raise typer.BadParameter(f'"{color}" is not one of auto, always, never', param_hint="--color")
    if color != "auto":
        os.environ["DUALPLAN_COLOR"] = color
    if debug:
        os.environ["DUALPLAN_DEBUG"] = "1"


def _command_line(arguments: list[str]) -> typer.Typer:
    """The command line, with the one command or group that is asked for where the first word names it.

    Loading and reading the options of all commands takes longer than many an answer.
    """
    named = arguments[0] if arguments and arguments[0] in {*COMMANDS, *GROUPS} else None
    app = typer.Typer(
        cls=FastGroup,
        name="dualplan",
        help="Plan prefill/decode inference clusters that load KV-cache from storage on either side.",
        no_args_is_help=True,
        add_completion=named is None,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_main_options)
    for name, place in COMMANDS.items():
        if named in (None, name):
            app.command(name, cls=FastCommand)(_function(place))
    for group, (about, places) in GROUPS.items():
        if named in (None, group):
            sub_app = typer.Typer(cls=FastGroup, help=about, no_args_is_help=True, rich_markup_mode=None)
            for name, place in places.items():
                sub_app.command(name, cls=FastCommand)(_function(place))
            app.add_typer(sub_app, name=group)
    return app


def _function(place: str) -> Callable[..., None]:
    module, _, name = place.partition(".")
    function: Callable[..., None] = getattr(importlib.import_module(f"dualplan.cli.{module}"), name)
    return function


def _fail(line: str, code: int) -> int:
    """Say why on standard error, as far as anybody listens."""
    with contextlib.suppress(OSError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    if line.startswith("standard output: "):
        _closed_pipe()
    return code


def _prepare_streams() -> None:
    """Streams that can be written whatever the caller closed, and text that any encoding can hold."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace" if name == "stdout" else "backslashreplace")
            if isinstance(stream, io.TextIOWrapper) and isinstance(stream.buffer, io.RawIOBase):
                setattr(sys, name, _buffered(stream))


def _buffered(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """A stream of an unbuffered Python (``PYTHONUNBUFFERED``) behind a buffer.

    Without one, Python drops what a full disk does not take and says nothing.
    """
    encoding, errors = stream.encoding, stream.errors
    raw: Any = stream.detach()
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=True)


def _invoke(arguments: list[str]) -> int:
    command = typer.main.get_command(_command_line(arguments))
    try:
        result = command.main(args=arguments, prog_name="dualplan", standalone_mode=False)
    except SystemExit as stop:
        # the option parser ends the process itself on a closed pipe (with 1) and on an interruption
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":
            raise ClosedPipeError from None
        if stop.code == 130:
            raise KeyboardInterrupt from None
        return stop.code if isinstance(stop.code, int) else 0
    except Exception as error:
        # usage errors of the option parser know how to show themselves; everything else is ours
        show, code = getattr(error, "show", None), getattr(error, "exit_code", None)
        if show is None or code is None:
            if type(error).__name__ == "Abort":
                raise KeyboardInterrupt from None
            raise
        show()
        return int(code)
    if result == 130:  # the option parser's word for an interruption
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def _closed_pipe() -> int:
    # point stdout at nothing so that the interpreter's last flush does not fail again
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as sink:  # noqa: PTH123
        os.dup2(sink.fileno(), sys.stdout.fileno())
    return 0
