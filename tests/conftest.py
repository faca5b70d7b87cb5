import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

# a background job ignores interruptions, and so would the commands that tests start and interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# new examples are looked for by people, who can act on them; CI tries the same ones every time;
# a shared or loaded machine is no reason for a property to fail
settings.register_profile("dualplan", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("dualplan")


@pytest.fixture
def shared_cases() -> Path:
    """Folder of reference cases kept beside the checkout; absent for users, so tests that need it are skipped there."""
    cases = SHARED / "cases"
    if not cases.is_dir():
        pytest.skip("reference cases are not beside this checkout")
    return cases
