"""Run the command line as a user does: a process with arguments, streams and an exit code of its own."""

import contextlib
import io
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
PAPER = str(ROOT / "examples" / "dualpath-paper.yaml")

# the server is a fresh interpreter, which finds the package as it is here
os.environ["PYTHONPATH"] = str(ROOT)
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.cli.preloaded"])


def dualplan(*arguments, cwd=ROOT, text=None, environment=None, timeout=120):
    """The finished process of ``dualplan ARGUMENTS``: ``returncode``, ``stdout``, ``stderr``.

    The process is forked from a server that has imported what commands need: a fresh interpreter would take most of
    the time of most tests. With ``environment`` it is a fresh interpreter, which alone obeys all of its variables.
    """
    wanted = list(map(str, arguments))
    if environment is not None:
        return fresh(*wanted, cwd=cwd, text=text, environment=environment, timeout=timeout)
    if any("\0" in argument for argument in wanted):
        raise ValueError("no process can be given a zero byte")
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
        streams[0].write_bytes((text or "").encode("utf-8"))
        process = PROCESSES.Process(target=_forked, args=(wanted, str(cwd), [str(path) for path in streams]))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(wanted, timeout)
        out, err = (path.read_bytes().decode("utf-8").replace("\r\n", "\n") for path in streams[1:])
        return SimpleNamespace(returncode=process.exitcode, stdout=out, stderr=err)


def _forked(arguments, cwd, streams):
    """The body of a forked process: its streams are files, its environment that of a plain terminal."""
    flags = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT)
    for number, (path, flag) in enumerate(zip(streams, flags, strict=True)):
        file = os.open(path, flag, 0o600)
        os.dup2(file, number)
        os.close(file)
    # streams of the interpreter are those of the server, which may be closed
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ["COLUMNS"] = "80"
    os.environ.pop("FORCE_COLOR", None)
    os.chdir(cwd)
    sys.argv = ["dualplan", *arguments]
    from dualplan.__main__ import main

    main()


def fresh(*arguments, cwd=ROOT, text=None, environment=None, timeout=120):
    """The same as a fresh interpreter."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **(environment or {})}
    env.pop("FORCE_COLOR", None)
    return subprocess.run(
        [sys.executable, "-m", "dualplan", *map(str, arguments)],
        cwd=cwd,
        env=env,
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def in_process(*arguments):
    """The same without a process of its own, for tests of many calls: ``returncode``, ``stdout``, ``stderr``."""
    from dualplan.cli.app import run

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(map(str, arguments)))
        texts = []
        for stream in (out, err):
            stream.flush()
            texts.append(stream.buffer.getvalue().decode("utf-8"))
    return SimpleNamespace(returncode=code, stdout=texts[0], stderr=texts[1])
