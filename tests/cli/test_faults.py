"""What goes wrong around a command: the disk, the pipe, the terminal, the locale, signals, its own files."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.commands import CALLS, command_line, files
from tests.cli.runner import PAPER, ROOT, in_process

READERS = [name for name in CALLS if files(name) and not CALLS[name].slow]
QUICK = [name for name in CALLS if not CALLS[name].slow]
WRITERS = [name for name in QUICK if CALLS[name].writes]
LONG = "x" * 5000


def start(*arguments, environment=None, **options):
    """A process of ``dualplan`` that still runs."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **(environment or {})}
    env.pop("FORCE_COLOR", None)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([sys.executable, "-m", "dualplan", *map(str, arguments)], cwd=ROOT, env=env, **pipes)


def one_line_of_error(text):
    lines = text.splitlines()
    assert lines and "Traceback" not in text and "unexpected" not in text, text
    return lines[-1]


def test_every_command_has_a_call():
    """A new command is tested here as soon as it has a call in tests/cli/commands.py."""
    from dualplan.cli.app import COMMANDS, GROUPS

    known = {*COMMANDS, *(f"{group} {name}" for group, (_, inner) in GROUPS.items() for name in inner)}
    assert set(CALLS) == known


# ---------------------------------------------------------------- the environment


HOSTILE = {
    "LC_ALL": "C",
    "LANG": "C",
    "PYTHONIOENCODING": "ascii",
    "PYTHONUTF8": "0",
    "TZ": "Pacific/Kiritimati",
    "TERM": "dumb",
    "COLUMNS": "1",
    "PYTHONWARNINGS": "error",
}


@pytest.mark.parametrize("name", CALLS)
def test_hostile_environment(name):
    """C locale, ASCII streams, an odd time zone and terminal, no HOME, no standard input, warnings as errors."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **HOSTILE}
    command = [sys.executable, "-m", "dualplan", *command_line(name)]
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" <&-', *command], cwd=ROOT, env=env, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == CALLS[name].code, done.stderr.decode()
    assert done.stdout.strip() and done.stdout.isascii() and b"\x1b" not in done.stdout
    assert b"Warning" not in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns", "Nonsense/Nowhere", ""])
def test_times_do_not_depend_on_the_zone(zone, monkeypatch):
    answers = []
    for name in (zone, "Asia/Kathmandu"):
        monkeypatch.setenv("TZ", name)
        time.tzset()
        answers.append(in_process("trace", "inspect", ROOT / "tests/fuzz/corpus/trace/azure.csv", "--json").stdout)
    monkeypatch.undo()
    time.tzset()
    assert answers[0] == answers[1] and answers[0]


@pytest.mark.parametrize("columns", [20, 60, 80])
def test_a_terminal_gets_its_width(columns):
    """A real terminal: colours are codes of their own, and no line is longer than the terminal (or 40)."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    process = start(
        "feasible", PAPER, environment={"COLUMNS": str(columns), "TERM": "xterm-256color"}, stdout=theirs, stdin=theirs
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # Linux says EIO where the other end is closed
        pass
    finally:
        os.close(ours)
    assert process.wait(60) == 0, process.communicate()[1]
    process.communicate()
    import re

    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    assert "\x1b[" in shown.decode() and "FEASIBLE" in plain
    assert max(len(line.rstrip("\r")) for line in plain.split("\n")) <= max(columns, 40)


# ---------------------------------------------------------------- where results go


@pytest.mark.parametrize("name", QUICK)
def test_closed_pipe(name):
    """Nobody reads: the command ends with 0 (or its verdict) and says nothing."""
    reader, writer = os.pipe()
    os.close(reader)
    process = start(*command_line(name), stdout=writer)
    os.close(writer)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (0, CALLS[name].code), errors
    assert b"Broken pipe" not in errors and b"Traceback" not in errors and b"Exception ignored" not in errors


def full_disk():
    """In the child: no file may grow beyond 16 bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))


@pytest.mark.parametrize("name", ["feasible", "sweep", "init", "hardware schema", "trace convert", "trace generate"])
def test_disk_full_behind_standard_output(name, tmp_path):
    """Said even in an unbuffered Python, which by itself drops what the disk does not take.

    One command for each way of writing: whole text, rows, templates, streams of bytes.
    """
    unbuffered = "1" if len(name) % 2 else ""
    with (tmp_path / "out").open("wb") as sink:
        process = start(
            *command_line(name), environment={"PYTHONUNBUFFERED": unbuffered}, stdout=sink, preexec_fn=full_disk
        )
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1, errors
    assert "standard output" in one_line_of_error(errors.decode())


@pytest.mark.parametrize("name", WRITERS)
def test_disk_full_keeps_the_file_that_was_there(name, tmp_path):
    target = tmp_path / "answer"
    target.write_text("what was there")
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        done = in_process(*command_line(name), "-o", target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert done.returncode == 3 and "cannot be written: File too large" in one_line_of_error(done.stderr)
    assert target.read_text() == "what was there"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["answer"]


@pytest.mark.parametrize("name", WRITERS)
def test_places_that_cannot_be_written(name, tmp_path):
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file" / "inside", tmp_path, tmp_path / "missing" / "answer", tmp_path / LONG, "/proc/x"):
        done = in_process(*command_line(name), "-o", target)
        assert done.returncode == 3, (target, done.stderr)
        one_line_of_error(done.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_read_only_and_full_file_systems(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        (small / "answer").write_text("what was there")
        done = in_process("trace", "generate", "dualpath-32k", "-n", "50", "-o", small / "answer")
        assert done.returncode == 3 and "No space left on device" in one_line_of_error(done.stderr)
        assert (small / "answer").read_text() == "what was there" and len(list(small.iterdir())) == 1
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
        done = in_process("feasible", PAPER, "-o", small / "answer")
        assert done.returncode == 3 and "Read-only file system" in one_line_of_error(done.stderr)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_killed_while_writing(tmp_path):
    """SIGKILL leaves the file as it was, never half of a new one."""
    target = tmp_path / "trace.jsonl"
    target.write_text("what was there")
    process = start("trace", "generate", "dualpath-64k", "-n", "4000", "-o", target)
    wait_for(lambda: any(tmp_path.glob(".dualplan.*")), process)
    process.kill()
    process.communicate()
    assert target.read_text() == "what was there"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stopped_while_writing(number, tmp_path):
    """A signal to stop leaves nothing at all."""
    target = tmp_path / "trace.jsonl"
    process = start("trace", "generate", "dualpath-64k", "-n", "4000", "-o", target)
    wait_for(lambda: any(tmp_path.glob(".dualplan.*")), process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert list(tmp_path.iterdir()) == []
    assert b"Traceback" not in errors


def wait_for(condition, process, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "ended too early"
        assert time.monotonic() < end, "never happened"
        time.sleep(0.01)


def test_two_runs_write_one_file(tmp_path):
    """The file is that of one of them, whole."""
    target = tmp_path / "answer.json"
    calls = [
        ("feasible", PAPER, "--json", "--set", f"hardware.snic.count={count}", "--exit-zero") for count in (1, 2, 4)
    ]
    whole = {in_process(*call).stdout for call in calls}
    running = [start(*call, "-o", target) for call in calls]
    for process in running:
        assert process.wait(60) == 0, process.communicate()
        process.communicate()
    assert target.read_text() in whole and len(whole) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["answer.json"]


# ---------------------------------------------------------------- interruptions


def test_interrupted_while_waiting_for_input():
    process = start("trace", "inspect", "-", stdin=subprocess.PIPE)
    process.stdin.write(b'{"timestamp": 0, "input_length": 6, "output_length": 1, "hash_ids": [1]}\n' * 20_000)
    process.stdin.flush()  # more than a pipe holds: from here on the command reads
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.decode().splitlines()[-1] == "interrupted"


def test_interrupted_confirmation_prints_the_steady_plan():
    process = start("plan", PAPER, "--arrival-rate=4", "--hardware=dgx-h200", "--confirm", "--fleet")
    while b"simulating" not in (said := process.stderr.readline()):
        assert said, "it ended before it simulated"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert b"INTERRUPTED  0 of 3 plans were simulated" in output and b"BUY" in output and b"Rate " in output
    assert errors.decode().splitlines()[-1] == "interrupted"


def test_interrupted_sweep_keeps_what_is_done(tmp_path):
    """Finished points are whole lines of the file, standard error says how many, and the same command goes on."""
    target = tmp_path / "points.jsonl"
    call = ("sweep", PAPER, "--vary", "seed=1..500", "--simulate", "--agents", "1", "-o", target)
    process = start(*call)
    wait_for(lambda: target.exists() and target.stat().st_size > 0, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    lines = target.read_text().splitlines()
    assert 0 < len(lines) < 500 and all(json.loads(line)["feasible"] in (True, False) for line in lines)
    assert f"{len(lines)} of 500" in errors.decode() and errors.decode().splitlines()[-1] == "interrupted"


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.15])
def test_interrupted_while_it_starts(delay):
    """Python itself may still be loading; from dualplan's first line on there is no traceback."""
    process = start("feasible", PAPER)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (0, 1, 130, -signal.SIGINT), errors
    assert b"dualplan/cli" not in errors and b"dualplan/plan" not in errors


# ---------------------------------------------------------------- what is read


@pytest.mark.parametrize("name", READERS)
def test_windows_text(name, tmp_path):
    """A byte-order mark and CRLF change nothing but the hash of the input."""
    plain, windows = tmp_path / "plain", tmp_path / "windows"
    answers = []
    for folder, changed in (
        (plain, lambda data: data),
        (windows, lambda data: b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")),
    ):
        folder.mkdir()
        words = command_line(name)
        for path in map(Path, files(name)):
            (folder / path.name).write_bytes(changed(path.read_bytes()))
            words[words.index(str(path))] = path.name
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            done = in_process(*words)
        assert done.returncode == CALLS[name].code, done.stderr
        answers.append([line for line in done.stdout.splitlines() if "byte order mark" not in line])
    assert answers[0] == answers[1]


@pytest.mark.parametrize("name", READERS)
def test_files_that_are_none(name, tmp_path):
    """Empty, binary, UTF-16, a folder, missing, a name too long: 3 and a line that names the file."""
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "blank").write_bytes(b" \n\n")
    (tmp_path / "latin1").write_bytes("é".encode("latin-1"))
    for place in ("empty", "binary", "blank", "latin1", "missing/file.yaml", LONG, "ctrl\x1b[31m\n.yaml"):
        words = command_line(name)
        words[words.index(files(name)[0])] = str(tmp_path / place)
        done = in_process(*words)
        assert done.returncode == 3, (place, done.stdout, done.stderr)
        one_line_of_error(done.stderr)
        assert "\x1b" not in done.stderr


@pytest.mark.parametrize("name", CALLS)
def test_wrong_usage(name):
    for wrong in (["--no-such-flag"], [LONG, LONG, LONG, LONG]):
        done = in_process(*command_line(name), *wrong)
        # some commands take any number of files
        assert done.returncode in (2, 3), (wrong[0][:20], done.stdout)
        assert "Traceback" not in done.stderr and not done.stdout


def test_unknown_names_get_a_hint():
    for flag in ("--hardware", "--model", "--workload"):
        done = in_process("feasible", PAPER, flag, LONG)
        assert done.returncode == 3 and flag in done.stderr


def test_home_of_nobody():
    """``~name`` of no user is a name like any other, also where there is no HOME."""
    for flag in ("--hardware", "--model", "--workload"):
        done = in_process("feasible", PAPER, flag, "~no-such-user/file.yaml")
        assert done.returncode == 3 and 'no such file "~no-such-user/file.yaml"' in done.stderr


def test_closed_streams():
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        command = [sys.executable, "-m", "dualplan", "feasible", PAPER]
        done = subprocess.run(
            ["sh", "-c", f'exec "$0" "$@" {closed}', *command], cwd=ROOT, capture_output=True, check=False
        )
        assert done.returncode == 0 and b"Traceback" not in done.stderr


# ---------------------------------------------------------------- the terminal

STEERS = "n\x1b[31mRED\x1b]0;title\x07\x9b31m\u202eZ"


@pytest.fixture
def named(tmp_path):
    """A scenario whose name, profile and workload try to steer the terminal, and the profile."""
    profile, workload, scenario = (tmp_path / f"{name}.yaml" for name in ("profile", "workload", "sce\x1b[31mRED"))
    text = json.dumps(STEERS)
    profile.write_text(f"extends: dualpath-hopper\nname: {text}\n")
    shipped = (ROOT / "workloads" / "dualpath-64k.yaml").read_text()
    workload.write_text(shipped.replace("name: dualpath-64k", f"name: {text}"))
    plain = Path(PAPER).read_text().replace("name: dualpath-paper", f"name: {text}")
    plain = plain.replace("hardware: dualpath-hopper", f"hardware: {profile}")
    scenario.write_text(plain.replace("workload: dualpath-64k", f"workload: {workload}"))
    return scenario, profile


@pytest.mark.parametrize("form", ["table", "md", "csv", "json", "jsonl"])
@pytest.mark.parametrize(
    "command",
    [
        ("feasible",),
        ("simulate", "--agents", "2"),
        ("sweep", "--vary", "decode=4,5"),
        ("plan", "--arrival-rate", "0.2", "--max-nodes", "8"),
        ("explain", "hit"),
        ("size", "store"),
        ("hardware", "show"),
    ],
)
def test_names_do_not_steer_the_terminal(command, form, named, monkeypatch):
    """Also where colours are on, so that codes as such are let through."""
    monkeypatch.setenv("DUALPLAN_COLOR", "always")
    words = [command[0], *(["store", named[0]] if command[0] == "size" else command[1:])]
    words = ["hardware", "show", named[1]] if command[0] == "hardware" else words
    words = words if command[0] in ("size", "hardware") else [words[0], named[0], *words[1:]]
    done = in_process(*words, "-f", form)
    assert done.returncode == 0, done.stderr
    for part in ("\x1b[31mRED", "\x1b]", "\x07", "\x9b", "\u202e"):
        assert part not in done.stdout and part not in done.stderr
    if form == "table" and command[0] in ("feasible", "simulate", "plan", "hardware"):
        assert "\x1b[1m" in done.stdout and r"n\x1b[31mRED" in done.stdout
    if form == "json":
        assert STEERS in _texts(json.loads(done.stdout))


def _texts(value):
    """Every text of a document."""
    if isinstance(value, str):
        return {value}
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {text for child in children for text in _texts(child)}
