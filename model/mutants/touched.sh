#!/usr/bin/env bash
# Mutants that cargo-mutants draws of what was changed in the core since a commit. What the core's own tests do not find is
# asked of the layers behind them; what none finds fails, unless .cargo/mutants.toml leaves it out and says why.
#
#   model/mutants/touched.sh [SINCE [I/N]]
#
# SINCE is a commit, ten commits ago if none is named; I/N asks one in N of them, the first with 0. A mutant takes some 15 s.
# It needs cargo-mutants (`cargo install --locked cargo-mutants`) and jq.
set -u
cd "$(dirname "$0")/../.." || exit
since=$(git rev-parse --verify --quiet "${1:-HEAD~10}^{commit}") || { echo "${1:-HEAD~10} is no commit here" >&2; exit 2; }
part=${2:-0/1}
out=$PWD/target/touched
seen=$out/mutants.out

# They are planted in a tree of their own: who is stopped in the midst of one leaves it there.
rm -rf "$out" && mkdir -p "$out/tree" && git archive HEAD | tar -x -C "$out/tree" || exit 1
git diff "$since" HEAD -- core/src >"$out/core.diff" || exit 1
if [ ! -s "$out/core.diff" ]; then
  echo "nothing in the core was changed since ${since:0:7}: nothing is asked"
  exit 0
fi
(cd "$out/tree" && cargo mutants --in-place -p latchd-core --in-diff "$out/core.diff" --timeout 60 \
  --shard "$part" --sharding round-robin -C=--config=profile.test.debug=0 --output "$out" -- --lib)
status=$?
# 2: some were missed; 3: some did not end, which finds them.
case $status in 0 | 2 | 3) ;; *) exit $status ;; esac
[ -s "$seen/missed.txt" ] || exit 0
survivors=()
while read -r name; do
  survivors+=("$seen/$(jq -r --arg name "$name" \
    '.outcomes[] | select((.scenario | objects | .Mutant.name) == $name) | .diff_path' "$seen/outcomes.json")")
done <"$seen/missed.txt"
cargo run --quiet -p latchd-mutants -- --drawn "${survivors[@]}"
