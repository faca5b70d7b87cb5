"""``model list`` and ``model show`` through real processes: values, formats, exit codes, bad input."""

import json

import pytest

from dualplan.spec.model import shipped_models
from tests.cli.runner import dualplan


def answer(*arguments, code=0):
    done = dualplan("model", *arguments, "--json")
    assert done.returncode == code, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_list():
    data = answer("list")
    assert data["schema"] == "dualplan/model-list/1"
    assert [row["name"] for row in data["models"]] == shipped_models()
    rows = {row["name"]: row for row in data["models"]}
    assert {"deepseek-v3.2", "deepseek-v3", "ds-27b", "qwen2.5-32b", "qwen3-235b-a22b", "gpt-oss-120b"} <= rows.keys()
    assert rows["deepseek-v3.2"]["kv_total_bytes_per_token"] == 48_068
    assert rows["ds-27b"]["kv_total_bytes_per_token"] == 21_720


def test_list_for_people():
    done = dualplan("model", "list")
    assert done.returncode == 0
    assert all(name in done.stdout for name in shipped_models())
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout


def test_show_in_bf16():
    data = answer("show", "deepseek-v3.2", "--kv-dtype", "bf16")
    assert next(iter(data)) == "schema"
    assert data["schema"] == "dualplan/model-show/1"
    assert data["kv_format"] == "bf16"
    assert data["kv_bytes_per_token"] == 70_272
    assert data["kv_index_bytes_per_token"] == 8_052
    assert data["kv_total_bytes_per_token"] == 78_324
    assert data["state_bytes_per_sequence"] == 0
    assert data["parameters"]["total"] == pytest.approx(671.9e9, rel=1e-3)
    assert data["sources"]


def test_show_default_format_and_turn():
    data = answer("show", "deepseek-v3.2", "--context", "32721", "--append", "429")
    assert (data["kv_bytes_per_token"], data["kv_total_bytes_per_token"]) == (40_016, 48_068)
    turn = data["turn"]
    assert turn["hit_tokens"] == 32_704
    assert turn["hit_bytes"] == 32_704 * 48_068
    assert turn["flops"] == turn["gemm_flops"] + turn["attention_flops"]
    assert turn["attention_flops"] == 429 * 61 * (2 * 128 * 1088 * 2048 + 2 * 64 * 128 * 32_721)
    assert [row["kind"] for row in data["layer_kinds"]] == ["mla + indexer"]


def test_show_hybrid():
    data = answer("show", "gpt-oss-120b", "--kv-dtype", "bf16")
    assert data["kv_bytes_per_token"] == 36_864
    assert data["state_bytes_per_sequence"] == 18 * 128 * 2048
    rows = {row["kind"]: row for row in data["layer_kinds"]}
    assert rows["full"]["layers"] == rows["sliding 128"]["layers"] == 18
    total = sum(row["layers"] * row["kv_bytes_per_token_and_layer"] for row in rows.values())
    assert total == data["kv_bytes_per_token"]


def test_show_a_file_a_directory_and_a_second_file(shared_cases, tmp_path):
    source = shared_cases / "models"
    data = answer("show", source / "Qwen--Qwen3-8B_config.json")
    assert data["kv_bytes_per_token"] == 36 * 8 * 256 * 2
    for name in ("config.json", "hf_quant_config.json"):
        (tmp_path / name).write_bytes((source / f"nvidia--DeepSeek-V3.2-NVFP4_{name}").read_bytes())
    data = answer("show", tmp_path)
    assert data["kv_format"] == "fp8"
    assert data["kv_format_origin"] == "kv_cache_quant_algo of hf_quant_config.json"
    assert data["weight_storage"] == "nvfp4"


def test_show_for_people():
    done = dualplan("model", "show", "deepseek-v3.2")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "DeepSeek-V3.2 (deepseek_v32), 61 layers"
    assert "48,068 B per token (40,016 B and 8,052 B of index keys)" in done.stdout
    assert max(map(len, lines)) <= 80
    own = dualplan("model", "show", "deepseek-v4-flash", "--kv-dtype", "bf16").stdout
    assert "only layout" in own
    assert "149,504 B per sequence" in own


@pytest.mark.parametrize(
    ("form", "start"), [("csv", "kind,layers,"), ("jsonl", '{"kind": '), ("md", "| kind | layers |")]
)
def test_other_formats(form, start):
    done = dualplan("model", "show", "gpt-oss-120b", "-f", form)
    assert done.returncode == 0
    assert done.stdout.startswith(start)
    assert len([line for line in done.stdout.splitlines() if "full" in line]) == 1


def test_same_input_same_bytes():
    runs = {dualplan("model", "show", "kimi-k2", "--json").stdout for _ in range(2)}
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "is empty"),
        (b'{"model_type": "llama",', "is not valid JSON: it ends too early"),
        (b"\x7fELF\x00\x00", "is a binary file"),
        (b'{"model_type": "bert", "hidden_size": 768}', '"bert" is an encoder'),
        (b'{"model_type": "mystery", "hidden_size": 768}', 'the attention of "mystery" is not known'),
    ],
)
def test_bad_files(tmp_path, text, expected):
    path = tmp_path / "config.json"
    path.write_bytes(text)
    done = dualplan("model", "show", path)
    assert (done.returncode, done.stdout) == (3, "")
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert str(path) in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["deepseek-v3.3"], 3, "did you mean deepseek-v3.2?"),
        (["no/such/config.json"], 3, "no such file"),
        (["."], 3, "the directory holds no config.json"),
        (["qwen2.5-32b", "--kv-dtype", "mla-704"], 3, "mla-704 is a format of MLA models"),
        (["qwen2.5-32b", "--kv-dtype", "fp9"], 3, "is not a KV-cache format"),
        (["qwen2.5-32b", "--context", "0"], 3, "--context: 0 is out of range"),
        (["qwen2.5-32b", "--append", "-3"], 3, "--append: -3 is out of range"),
        ([], 2, "NAME|FILE|DIR"),
    ],
)
def test_bad_arguments(arguments, code, expected):
    done = dualplan("model", "show", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
