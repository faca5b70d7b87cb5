from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"


@pytest.fixture
def shared_cases() -> Path:
    """Folder of reference cases kept beside the checkout; absent for users, so tests that need it are skipped there."""
    cases = SHARED / "cases"
    if not cases.is_dir():
        pytest.skip("reference cases are not beside this checkout")
    return cases
