#!/usr/bin/env bash
# Executes the faults of a cluster against etcd, HAProxy and two processes for each partition, and judges the histories
# of lockers and cache clients.
#
#   run.sh PROGRAM [--linearize PROGRAM] [--all] [--times N] [--slack N] [--tries N] [--only NAME,…] [--random SECONDS]
#          [--logs FOLDER]
#
# Without --all it is one short pass, which takes a minute on an idle machine. It is for a busy machine: limits of times
# count threefold, and a fault has three tries. --all executes every fault with three members of etcd, N times, and
# prints median and worst as a table. The rules of the histories are strict in both. With --linearize, the first option,
# that program judges the history as well. Debian must have etcd-server, etcd-client and haproxy. If one is missing, a
# line says so, and with TEST_REQUIRE_PEERS the run fails.
#
# Exits 1 if a rule or a requirement is broken, and 2 if the run cannot begin.

set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)

give_up() {
    echo "run.sh: $*" >&2
    exit 2
}

[ $# -ge 1 ] || give_up "which program?"
program=$1
shift
[ -x "$program" ] || give_up "$program is no program"
program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program")
linearize=
if [ "${1:-}" = --linearize ]; then
    linearize=${2:?which program?}
    shift 2
    [ -x "$linearize" ] || give_up "$linearize is no program"
fi

for peer in etcd:etcd-server etcdctl:etcd-client haproxy:haproxy; do
    command -v "${peer%:*}" >/dev/null && continue
    [ -z "${TEST_REQUIRE_PEERS:-}" ] || give_up "${peer%:*} is missing (Debian: ${peer#*:})"
    echo "skipped: ${peer%:*} is missing (Debian: ${peer#*:})"
    exit 0
done
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || give_up "Python 3.11 or newer is missing"

export PYTHONDONTWRITEBYTECODE=1
python3 "$here/history_test.py"
options=("$@")
[[ " $* " == *" --all "* || " $* " == *" --random "* ]] || options=(--slack 3 --tries 3 "$@")
[ -n "$linearize" ] || exec python3 "$here/faults.py" "$program" "${options[@]}"

history=$(mktemp)
trap 'rm -f "$history"' EXIT
ended=0
python3 "$here/faults.py" "$program" "${options[@]}" --history "$history" || ended=$?
[ $ended -ne 2 ] || exit 2
"$linearize" --check "$history" || ended=1
exit $ended
