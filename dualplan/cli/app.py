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
from typing import Annotated, Any, NamedTuple

import typer

from dualplan import __version__
from dualplan.cli.command import FastCommand, FastGroup
from dualplan.cli.options import ClosedPipeError, print_text
from dualplan.cli.progress import compiling_line
from dualplan.errors import DualplanError, printable_lines
from dualplan.serving import compiling


class Entry(NamedTuple):
    """One command: the module of ``dualplan.cli`` and the function that it is, what lists of commands say of it, and a
    call to start from. The summary takes one line of 80 columns.
    """

    place: str
    summary: str
    example: str


COMMANDS: dict[str, Entry] = {
    "feasible": Entry(
        "feasible.feasible",
        "Is a P/D deployment free of bottlenecks? Rate, range, what binds.",
        "dualplan feasible my.yaml --arrival-rate 0.4",
    ),
    "simulate": Entry(
        "simulate.simulate",
        "Agents over time: JCT, TTFT, TPOT, capacity under an SLO.",
        "dualplan simulate my.yaml --agents 64",
    ),
    "sweep": Entry(
        "sweep.sweep",
        "The same over nodes, P/D, hardware or any key, a row a point.",
        "dualplan sweep my.yaml --vary pd=1:5..5:1 --nodes 6",
    ),
    "plan": Entry(
        "plan.plan",
        "The cheapest deployments for a demand and an SLO; upgrades.",
        "dualplan plan my.yaml --arrival-rate 0.4 --slo-ttft 4s",
    ),
    "explain": Entry(
        "explain.explain",
        "The equations of an answer with their numbers, solved for any X.",
        'dualplan explain my.yaml "decode HBM" turns/s',
    ),
    "report": Entry(
        "report.report",
        "The document for a capacity review, as HTML or Markdown.",
        "dualplan report my.yaml --arrival-rate 0.4 -o review.html",
    ),
    "compare": Entry(
        "compare.compare",
        "Scenarios side by side, with every input that differs.",
        "dualplan compare my.yaml other.yaml",
    ),
    "ratio": Entry(
        "ratio.ratio",
        "GB of KV-cache to load per PFLOP of compute, by model.",
        "dualplan ratio deepseek-v3.2 qwen2.5-32b --context 16384,65536",
    ),
    "validate": Entry(
        "validate.validate",
        "How accurate is it? Published figures against predictions.",
        "dualplan validate range lanes --list",
    ),
    "calibrate": Entry(
        "calibrate.calibrate",
        "Efficiencies of a profile, fitted to your own measurements.",
        "dualplan calibrate my.yaml --measurements measured.csv",
    ),
    "flow": Entry(
        "flow.flow",
        "When each flow of a flow problem ends, links shared max-min.",
        "dualplan flow case.json",
    ),
    "qos": Entry(
        "qos.qos",
        "What InfiniBand lanes or RoCE classes get, KV among them.",
        "dualplan qos opensm.conf --kv-lane 2",
    ),
    "init": Entry("scenario.init", "Write a commented scenario to start from.", "dualplan init -o my.yaml"),
}
"""The commands by name."""

GROUPS: dict[str, tuple[str, dict[str, Entry]]] = {
    "size": (
        "Storage for a load: working set, servers, DRAM pool, remote site.",
        {
            "working-set": Entry(
                "size.working_set",
                "KV-cache of the agents under way at a rate.",
                "dualplan size working-set my.yaml --arrival-rate 0.4",
            ),
            "store": Entry(
                "size.store",
                "Storage servers, bytes written a day, drive life.",
                "dualplan size store my.yaml --retention 24h --server-read 40GB/s",
            ),
            "break-even": Entry(
                "size.break_even",
                "Load or recompute: the bandwidth above which loading wins.",
                "dualplan size break-even my.yaml --context 8192,131072",
            ),
            "pool": Entry(
                "size.pool",
                "A DRAM pool beside storage: its share of hits, the rate.",
                "dualplan size pool my.yaml --trace trace.jsonl --capacity 2TB,8TB",
            ),
            "wan": Entry(
                "size.wan",
                "KV-cache at another site: load it or compute it again.",
                "dualplan size wan my.yaml --bandwidth 10Gb/s --latency 30ms",
            ),
        },
    ),
    "scenario": (
        "The JSON Schema of scenario files.",
        {
            "schema": Entry(
                "scenario.schema",
                "Print the JSON Schema of a scenario file, for editors.",
                "dualplan scenario schema -o scenario.schema.json",
            )
        },
    ),
    "hardware": (
        "Hardware profiles: list, show, schema, import from captures.",
        {
            "list": Entry("hardware.list_hardware", "The shipped profiles, a line each.", "dualplan hardware list"),
            "show": Entry(
                "hardware.show", "Every value of one profile, with its source.", "dualplan hardware show dgx-h200"
            ),
            "schema": Entry(
                "hardware.schema",
                "Print the JSON Schema of a profile, for editors.",
                "dualplan hardware schema -o profile.schema.json",
            ),
            "import": Entry(
                "hardware_import.import_hardware",
                "A profile from nvidia-smi, ibstat and other captures.",
                "dualplan hardware import topo.txt ibstat.txt",
            ),
        },
    ),
    "model": (
        "Models: list, show one from its config.json.",
        {
            "list": Entry("model.list_models", "The shipped models, a line each.", "dualplan model list"),
            "show": Entry(
                "model.show",
                "KV bytes, parameters, weights and FLOPs of one model.",
                "dualplan model show path/to/config.json",
            ),
        },
    ),
    "workload": (
        "Workloads: list, show.",
        {
            "list": Entry("workload.list_workloads", "The shipped workloads, a line each.", "dualplan workload list"),
            "show": Entry(
                "workload.show",
                "Lengths, hit rates and sources of one workload.",
                "dualplan workload show dualpath-32k",
            ),
        },
    ),
    "trace": (
        "Serving traces: inspect, convert, fit a workload, generate.",
        {
            "inspect": Entry(
                "trace.inspect",
                "Lengths, sessions, arrivals and hit rates of a trace.",
                "dualplan trace inspect trace.jsonl",
            ),
            "convert": Entry(
                "trace.convert",
                "Write a trace in another format.",
                "dualplan trace convert trace.jsonl out.jsonl.gz --to burstgpt",
            ),
            "fit": Entry(
                "trace_fit.fit", "A workload fitted to a trace.", "dualplan trace fit trace.jsonl -o fitted.yaml"
            ),
            "generate": Entry(
                "trace_fit.generate",
                "Trajectories that reproduce a workload, as a trace.",
                "dualplan trace generate dualpath-32k -n 100 -o made.jsonl",
            ),
        },
    ),
}
"""Groups of commands: what they are about, and their commands by name."""


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
    compiling.listeners[:] = [compiling_line]


def _command_line(arguments: list[str]) -> typer.Typer:
    """The command line, with the one command or group that is asked for where the first word names it.

    Loading and reading the options of all commands takes longer than many an answer.
    """
    named = arguments[0] if arguments and arguments[0] in {*COMMANDS, *GROUPS} else None
    if arguments[1:] and arguments[0] in ("--show-completion", "--install-completion"):
        # a shell that is named is meant, whatever shell this runs in; else Typer asks the parent process
        os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
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
    for name, entry in COMMANDS.items():
        if named in (None, name):
            _add(app, name, entry)
    for group, (about, entries) in GROUPS.items():
        if named in (None, group):
            sub_app = typer.Typer(cls=FastGroup, help=about, no_args_is_help=True, rich_markup_mode=None)
            for name, entry in entries.items():
                _add(sub_app, name, entry)
            app.add_typer(sub_app, name=group, short_help=about)
    return app


def _add(app: typer.Typer, name: str, entry: Entry) -> None:
    command = app.command(name, cls=FastCommand, short_help=entry.summary, epilog=f"Example: {entry.example}")
    command(_function(entry.place))


def _function(place: str) -> Callable[..., None]:
    module, _, name = place.partition(".")
    function: Callable[..., None] = getattr(importlib.import_module(f"dualplan.cli.{module}"), name)
    return function


def _fail(line: str, code: int) -> int:
    """Say why on standard error, as far as anybody listens."""
    with contextlib.suppress(OSError):
        sys.stderr.write(printable_lines(line) + "\n")
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
