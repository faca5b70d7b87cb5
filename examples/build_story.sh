#!/usr/bin/env bash
# Builds examples/story again: README.md with the answers of the commands in it, and the report. A test compares them
# with what is committed. DUALPLAN and PYTHON may name other ways to call these; the story goes to a folder given as
# argument.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/story}
mkdir -p "$folder"
[ "$folder" -ef "$here/story" ] || cp "$here/story/scenario.yaml" "$folder/"
cd "$folder"
export COLUMNS=100 NO_COLOR=1
unset FORCE_COLOR DUALPLAN_COLOR
story=README.md.part
: > $story

say() { cat >> $story; }

# A command and the head of its answer; what it assumes and the use of every link stand in the report. Exit code 4 is an
# answer too.
show() {
  local answer code=0
  answer=$(${DUALPLAN:-dualplan} "$@" 2> /dev/null) || code=$?
  [ $code = 0 ] || [ $code = 4 ] || { echo "dualplan $* ended with $code" >&2; exit 1; }
  {
    printf '\n```\n$ dualplan %s\n' "$(printf '%s ' "$@" | sed 's/ $//')"
    printf '%s\n' "$answer" | sed -e '/^ *Assumed/,$d' -e '/^  Used  /,$d' | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
    printf '```\n\n'
  } >> $story
}

say << 'TEXT'
# Buying for 0.4 agents per second

A service will start 0.4 coding agents on DeepSeek-V3.2 every second. An agent takes 157 turns, and each turn sends its whole
context again, so most of the prompt is KV-cache read from storage. What must be bought, and what could go wrong?
[scenario.yaml](scenario.yaml) says what is known; the node is the one of the DualPath paper, at an example price of 25 USD an hour.

`examples/build_story.sh` builds this page and the report again; a test keeps both current.

## 1. The least that carries it
TEXT
show plan scenario.yaml --price dualpath-hopper=25
say << 'TEXT'
The decode side needs memory for the sequences in flight, so it wants more nodes than the prefill side. But look at `N+1`: without its
second prefill node the model no longer fits, and the service stops. That is not what one buys for a service.

## 2. With one node down
TEXT
show plan scenario.yaml --price dualpath-hopper=25 --spare 1
say << 'TEXT'
This is the plan to defend: either side may lose a node and the demand is still met. It is what `scenario.yaml` holds.

## 3. Does queueing spoil it?

The steady rate knows no queues. The simulation lets agents arrive at random and schedules every turn.
TEXT
show simulate scenario.yaml
say << 'TEXT'
Both service levels hold, with room. Now the demand is known to lie below capacity, but not by how much:
TEXT
show simulate scenario.yaml --find-capacity
say << 'TEXT'
## 4. What if there were no reading on both sides?

The same nodes with the usual way to read, on the prefill side alone:
TEXT
show feasible scenario.yaml --mode layerwise --exit-zero
say << 'TEXT'
## 5. The document for the meeting

[report.md](report.md) holds the answer, the P/D range, both read paths with the load of every link, modes, sensitivity, upgrades, cost,
working set, risks, assumptions with sources and the equations:
TEXT
command=(report scenario.yaml --simulate --set hardware.cost.price_per_hour=25USD/h -o report.md)
printf '\n```sh\ndualplan %s\n```\n\n' "${command[*]}" >> $story
${DUALPLAN:-dualplan} "${command[@]}" 2> /dev/null
say << 'TEXT'
`-o report.html` makes one file of it that can be sent and printed; `--lang zh` writes it in Chinese.

Decision: buy what step 2 says. Before signing, measure what the report names first under sensitivity, and put your own prices in.
TEXT
mv $story README.md
${PYTHON:-python3} - << 'TEXT' > made-with.txt
from importlib.metadata import version

for name in ("matplotlib", "sympy", "numpy"):
    print(name, version(name))
TEXT
