"""The command line: which commands there are, exit codes, closed pipes, interruptions.

Command modules import nothing heavy at the top; a command imports what it needs when it runs.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated

import typer

from dualplan import __version__
from dualplan.cli import (
    feasible,
    flow,
    hardware,
    hardware_import,
    model,
    qos,
    ratio,
    scenario,
    trace,
    trace_fit,
    workload,
)
from dualplan.cli.command import FastCommand, FastGroup
from dualplan.cli.options import ClosedPipeError, print_text
from dualplan.errors import DualplanError

app = typer.Typer(
    cls=FastGroup,
    name="dualplan",
    help="Plan prefill/decode inference clusters that load KV-cache from storage on either side.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("feasible", cls=FastCommand)(feasible.feasible)
app.command("ratio", cls=FastCommand)(ratio.ratio)
app.command("flow", cls=FastCommand)(flow.flow)
app.command("qos", cls=FastCommand)(qos.qos)
app.command("init", cls=FastCommand)(scenario.init)

scenario_app = typer.Typer(cls=FastGroup, help="Scenario files.", no_args_is_help=True, rich_markup_mode=None)
scenario_app.command("schema", cls=FastCommand)(scenario.schema)
app.add_typer(scenario_app, name="scenario")

hardware_app = typer.Typer(cls=FastGroup, help="Hardware profiles.", no_args_is_help=True, rich_markup_mode=None)
hardware_app.command("list", cls=FastCommand)(hardware.list_hardware)
hardware_app.command("show", cls=FastCommand)(hardware.show)
hardware_app.command("schema", cls=FastCommand)(hardware.schema)
hardware_app.command("import", cls=FastCommand)(hardware_import.import_hardware)
app.add_typer(hardware_app, name="hardware")

model_app = typer.Typer(cls=FastGroup, help="Models.", no_args_is_help=True, rich_markup_mode=None)
model_app.command("list", cls=FastCommand)(model.list_models)
model_app.command("show", cls=FastCommand)(model.show)
app.add_typer(model_app, name="model")

trace_app = typer.Typer(cls=FastGroup, help="Serving traces.", no_args_is_help=True, rich_markup_mode=None)
trace_app.command("inspect", cls=FastCommand)(trace.inspect)
trace_app.command("convert", cls=FastCommand)(trace.convert)
trace_app.command("fit", cls=FastCommand)(trace_fit.fit)
trace_app.command("generate", cls=FastCommand)(trace_fit.generate)
app.add_typer(trace_app, name="trace")

workload_app = typer.Typer(cls=FastGroup, help="Workloads.", no_args_is_help=True, rich_markup_mode=None)
workload_app.command("list", cls=FastCommand)(workload.list_workloads)
workload_app.command("show", cls=FastCommand)(workload.show)
app.add_typer(workload_app, name="workload")


def _version(wanted: bool) -> None:
    if wanted:
        print_text(f"dualplan {__version__}\n")
        raise typer.Exit


@app.callback()
def main_options(
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
        return _fail(f"{error.filename or 'standard output'}: {error.strerror or error}", 1)
    except Exception as error:
        if os.environ.get("DUALPLAN_DEBUG"):
            raise
        return _fail(f"unexpected {type(error).__name__}: {error} (run with --debug for the traceback)", 1)
    return code


def _fail(line: str, code: int) -> int:
    """Say why on standard error, as far as anybody listens."""
    with contextlib.suppress(OSError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    if code == 1 and "standard output" in line:
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


def _invoke(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
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
    return result if isinstance(result, int) else 0


def _closed_pipe() -> int:
    # point stdout at nothing so that the interpreter's last flush does not fail again
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as sink:  # noqa: PTH123
        os.dup2(sink.fileno(), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    return 0
