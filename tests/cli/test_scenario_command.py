import json
from pathlib import Path

import jsonschema
import yaml

from tests.cli.runner import PAPER, ROOT, dualplan


def test_init_writes_a_scenario_that_runs(tmp_path):
    made = dualplan("init", "-o", "my.yaml", cwd=tmp_path)
    assert made.returncode == 0 and made.stdout == ""
    assert dualplan("feasible", "my.yaml", cwd=tmp_path).returncode == 0
    again = dualplan("init", "-o", "my.yaml", cwd=tmp_path)
    assert again.returncode == 3 and "exists already" in again.stderr
    assert dualplan("init", "-o", "my.yaml", "--force", cwd=tmp_path).returncode == 0
    assert dualplan("init").stdout == (tmp_path / "my.yaml").read_text()


def test_schema_accepts_what_is_shipped_and_refuses_typos(tmp_path):
    schema = json.loads(dualplan("scenario", "schema").stdout)
    validator = jsonschema.Draft202012Validator(schema)
    for text in (Path(PAPER).read_text(), dualplan("init").stdout):
        validator.validate(yaml.safe_load(text))
    good = yaml.safe_load(Path(PAPER).read_text())
    assert not validator.is_valid({**good, "prefil_nodes": 2})
    assert not validator.is_valid({**good, "mode": "dualpath"})
    assert not validator.is_valid({key: value for key, value in good.items() if key != "model"})


def test_every_commented_key_of_the_template_is_valid(tmp_path):
    text = dualplan("init").stdout
    lines = []
    for line in text.splitlines():
        body = line.removeprefix("# ")
        key = body.split(":")[0]
        uncommented = line.startswith("# ") and ":" in body and key.isidentifier() and key not in ("hardware",)
        lines.append(body if uncommented else line)
    (tmp_path / "all.yaml").write_text("\n".join(lines) + "\n")
    done = dualplan("feasible", "all.yaml", "--exit-zero", "--set=demand.arrival_rate=0.1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_paths_in_a_file_are_relative_to_it(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "node.yaml").write_text("extends: dualpath-hopper\nname: mine\n")
    (tmp_path / "sub" / "s.yaml").write_text(
        Path(PAPER).read_text().replace("hardware: dualpath-hopper", "hardware: node.yaml")
    )
    done = dualplan("feasible", "sub/s.yaml", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["hardware"] == "mine"


def test_version_and_completion():
    assert dualplan("--version").stdout.startswith("dualplan 0.")
    for shell, word in (("bash", "complete "), ("zsh", "#compdef dualplan"), ("fish", "complete --command dualplan")):
        script = dualplan("--show-completion", shell)
        assert script.returncode == 0 and word in script.stdout, (shell, script.stderr)
    assert dualplan("--show-completion", "cmd.exe").returncode == 2
    assert (ROOT / "pyproject.toml").exists()
