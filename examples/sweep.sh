#!/usr/bin/env bash
# The cheapest split that carries a demand, found by a sweep: CSV with standard tools, decisions by exit codes.
# Usage: sweep.sh SCENARIO AGENTS_PER_SECOND [MOST_NODES]
set -euo pipefail

scenario=${1:?scenario file}
rate=${2:?agents per second}
most=${3:-16}
dualplan=${DUALPLAN:-dualplan}

table=$(mktemp)
trap 'rm -f "$table"' EXIT

# One row a split of up to $most nodes; rows whose rate is too low are infeasible, the sweep still ends with 0.
"$dualplan" sweep "$scenario" --arrival-rate "$rate" --vary "prefill=1..$most" --vary "decode=1..$most" \
  -f csv -o "$table"

# Columns by name, so that new ones do no harm: fewest GPUs among feasible splits of at most $most nodes.
best=$(awk -F, -v most="$most" '
  NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
  $column["feasible"] == "true" && $column["prefill_nodes"] + $column["decode_nodes"] <= most {
    print $column["gpus"] "," $column["prefill_nodes"] "," $column["decode_nodes"]
  }' "$table" | sort -t, -k1,1n -k2,2n | head -n 1)

if [ -z "$best" ]; then
  echo "no split of $most nodes carries $rate agents/s" >&2
  exit 4
fi
IFS=, read -r gpus prefill decode <<<"$best"
echo "${prefill}P${decode}D ($gpus GPUs) carries $rate agents/s"

# The same question asked again by exit code: 0 yes, 4 no.
"$dualplan" feasible "$scenario" --arrival-rate "$rate" --prefill "$prefill" --decode "$decode" -f csv >/dev/null

# And what it would gain from more storage NICs.
"$dualplan" sweep "$scenario" --prefill "$prefill" --decode "$decode" --vary hardware.snic.count=1,2,4 -f csv |
  awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
    { printf "%s storage NICs a node: %.1f turns/s, bound by %s\n", $column["hardware.snic.count"],
      $column["throughput.turns_per_s"], $column["bottleneck.resource"] }'
