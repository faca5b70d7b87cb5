"""``dualplan init`` and ``dualplan scenario schema``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dualplan.cli.options import OutputOption, note, print_text, write_text

TEMPLATE = """\
# A dualplan scenario. Run it with: dualplan feasible FILE
# Every key can be replaced by a flag, or by --set key.path=value.

name: my-cluster

# A shipped profile (dualplan hardware list), a file, or a mapping with extends:
hardware: dualpath-hopper
# hardware: {extends: dgx-h100, snic: {count: 1}}
# decode_hardware: dgx-h200        # where decode nodes differ

model: deepseek-v3.2               # dualplan model list, or a config.json
workload: dualpath-64k             # dualplan workload list, a YAML file, or a trace

prefill_nodes: 2
decode_nodes: 4

mode: dual-path                    # basic, layerwise, dual-path, split-read, dram-pool, oracle
# staging: host                    # host, gpudirect, gds
# copy: cnic                       # host-GPU copies by cnic or engine
# persist: decode                  # who persists the miss KV
# policy: shortest-queue           # or round-robin: how the read side is chosen
# balance: 1.18                    # largest over mean load of a storage NIC, instead of the policy's
# collective_load: 0.3             # share of compute NICs that collectives use, instead of derived
# prefill: {parallel: "ep=16,tp=1,dp=16"}
# decode: {parallel: "ep=32,tp=1,dp=32"}

# Nodes that differ (cnics: so many of their compute NICs have the new cnic.rate); all pairs of nodes are then solved.
# variants: [{side: decode, nodes: 1, set: {snic.rate: 200Gb/s}}]

# Values that are not known exactly: feasible says how robust its verdict is and which of them to measure.
# uncertain: {hardware.efficiency.prefill: 0.15 +- 0.03, hardware.snic.efficiency: 0.8..0.95}

# Several models or workloads on one cluster, by shares of all turns, instead of model and workload:
#   mix: [{model: deepseek-v3.2, workload: dualpath-64k, share: 0.7},
#         {model: qwen2.5-32b, workload: dualpath-32k, share: 0.3}]

slo: {ttft: 4s, tpot: 50ms}
# demand: {arrival_rate: 0.4}      # agents per second; or turn_rate: turns per second
"""


def init(
    output_file: OutputOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented scenario to start from."""
    from dualplan.errors import InputError

    if output_file is None:
        print_text(TEMPLATE)
        return
    if Path(output_file).exists() and not force:
        raise InputError(f"-o {output_file}", "exists already", "--force replaces it")
    write_text(output_file, TEMPLATE)
    note(f"wrote {output_file}; next: dualplan feasible {output_file}")


def schema(output_file: OutputOption = None) -> None:
    """Print the JSON Schema of a scenario file, for editors."""
    import json

    from dualplan.spec.scenario import scenario_schema

    text = json.dumps(scenario_schema(), indent=2) + "\n"
    if output_file is None:
        print_text(text)
    else:
        write_text(output_file, text)
