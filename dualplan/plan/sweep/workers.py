"""Where the parts of a sweep run: here, on processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dualplan.errors import InputError
from dualplan.plan.sweep.points import Block, Part, Source, failed, run_parts
from dualplan.spec.run import RunSpec

if TYPE_CHECKING:
    from concurrent.futures import Future

ROUNDS = 8
"""Tasks that each worker gets, so that slow ones do not hold up the rest."""
MOST_IN_TASK = 64
TRIES = 3
"""Times that a part is begun when the process that works on it is lost."""


def blocks(
    source: Source, spec: RunSpec | None, parts: Sequence[Part], *, jobs: int, cluster: str | None
) -> Iterator[Block]:
    """The answers of parts from where they are to run: the cluster at this address, else so many processes."""
    if cluster is not None:
        return on_cluster(source, spec, parts, cluster)
    if jobs > 1 and len(parts) > 1:
        return on_processes(source, spec, parts, jobs)
    return here(source, spec, parts)


def here(source: Source, spec: RunSpec | None, parts: Sequence[Part]) -> Iterator[Block]:
    """One after the other in this process."""
    for part in parts:
        yield from run_parts(source, spec, [part])


def on_processes(source: Source, spec: RunSpec | None, parts: Sequence[Part], workers: int) -> Iterator[Block]:
    """On ``workers`` processes, in the order in which they end. A part whose process is lost is begun again.

    The first part runs here, before the processes are made: what it loads they then have.
    """
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    yield from run_parts(source, spec, parts[:1])
    left = _tasks(parts[1:], workers)
    for attempt in range(TRIES):
        lost: list[Sequence[Part]] = []
        pool = ProcessPoolExecutor(workers, mp_context=_context(), initializer=_ignore_interrupts)
        try:
            waiting: dict[Future[Any], Sequence[Part]] = {}
            for task in left:
                try:
                    waiting[pool.submit(run_parts, source, spec, task)] = task
                except BrokenProcessPool as error:  # a process was lost while tasks were still handed out
                    waiting[_broken(error)] = task
            for future in as_completed(waiting):
                try:
                    yield from future.result()
                except BrokenProcessPool as error:
                    if attempt + 1 == TRIES:
                        yield from (failed(part.positions, error) for part in waiting[future])
                    lost.append(waiting[future])
        except BaseException:
            for process in list((getattr(pool, "_processes", None) or {}).values()):
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        # all is done; a caller that is a child process itself would not end if it ended before the processes do
        pool.shutdown()
        # what broke the pool once may do so again: alone it takes no other part with it
        left = [[part] for task in lost for part in task]
        if not left:
            return


def _broken(error: BaseException) -> Future[Any]:
    """A future of what could not be handed out."""
    from concurrent.futures import Future

    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def _context() -> Any:
    """Processes start as copies of this one where that is safe, on Linux without other threads; else afresh."""
    import multiprocessing
    import sys
    import threading

    alone = sys.platform == "linux" and threading.active_count() == 1
    return multiprocessing.get_context("fork" if alone else "spawn")


def _ignore_interrupts() -> None:
    """Ctrl-C goes to all processes of a terminal; the one that waits for the others ends them."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


def on_cluster(source: Source, spec: RunSpec | None, parts: Sequence[Part], address: str) -> Iterator[Block]:
    """On the workers of a Dask scheduler, in the order in which they end; Dask begins what a lost worker had again.

    dualplan must be installed on the workers. Raises InputError where no scheduler or no worker answers.
    """
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise InputError("--cluster", "needs Dask", "pip install 'dualplan[cluster]'") from None
    try:
        client = distributed.Client(address, timeout=10)
    except (OSError, ValueError, TimeoutError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError("--cluster", f"no scheduler answers at {address}: {what}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=10)
        except TimeoutError:
            raise InputError("--cluster", f"{address} has no worker", f"dask worker {address}") from None
        threads = sum(client.nthreads().values())
        tasks = {
            client.submit(run_parts, source, spec, task, pure=False, retries=TRIES): task
            for task in _tasks(parts, max(threads, 1))
        }
        for future in distributed.as_completed(tasks):
            fault = future.exception()
            if fault is not None:
                yield from (failed(part.positions, fault) for part in tasks[future])
            else:
                yield from future.result()
            future.release()


def _tasks(parts: Sequence[Part], workers: int) -> list[Sequence[Part]]:
    """Parts in portions, several for each worker."""
    size = min(max(len(parts) // (ROUNDS * workers), 1), MOST_IN_TASK)
    return [parts[at : at + size] for at in range(0, len(parts), size)]
