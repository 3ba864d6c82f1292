#!/usr/bin/env bash
# Runs pymemcache's own integration tests against a server, on its own port of 127.0.0.1.
#
#   run.sh SERVER-PROGRAM
#
# pymemcache's source, at the version below, and what its tests need come from PyPI, once, below
# LATCHD_PYMEMCACHE_DIR (default: target/pymemcache); Debian must have python3-venv. known.txt has what
# fails, by the name of the test, with the reason: any other failure fails, and so does one that has gone. Exits 1 then,
# and 2 if it cannot begin.

set -u -o pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${LATCHD_PYMEMCACHE_DIR:-$here/../../target/pymemcache}
version=4.0.0

give_up() {
    echo "run.sh: $*" >&2
    exit 2
}

server=${1:-}
[ -x "$server" ] || give_up "which server? A program"
mkdir -p "$folder" || give_up "cannot make $folder"
folder=$(cd "$folder" && pwd)
# shellcheck source=../start.sh
. "$here/../start.sh"

if [ ! -e "$folder/ready" ]; then
    python3 -m venv "$folder/python" || give_up "no venv (Debian: python3-venv)"
    pip=("$folder/python/bin/pip" --quiet --disable-pip-version-check)
    "${pip[@]}" install pytest faker gevent zstd >&2 || give_up "what the tests need cannot be installed"
    "${pip[@]}" download --no-deps --no-binary pymemcache "pymemcache==$version" -d "$folder" >&2 ||
        give_up "pymemcache's source cannot be had"
    tar -xzf "$folder/pymemcache-$version.tar.gz" -C "$folder" || give_up "pymemcache's source cannot be read"
    touch "$folder/ready"
fi

start "$server" "$folder/server.txt"
trap 'kill "$pid" 2>/dev/null' EXIT
await "$address"

cd "$folder/pymemcache-$version" || give_up "pymemcache's source is not there"
timeout 300 "$folder/python/bin/python" -m pytest -c /dev/null --rootdir=. -p no:cacheprovider -q -W ignore -r fE \
    -m integration --server 127.0.0.1 --port "$port" pymemcache/test >"$folder/output.txt" 2>&1 </dev/null

# `FAILED path::test_name[case] - reason`, of which the name counts.
failed=$(sed -n 's/^\(FAILED\|ERROR\) [^:]*::\([a-z_0-9]*\).*/\2/p' "$folder/output.txt" | sort -u)
known=$(grep -v '^#' "$here/known.txt" | awk '{ print $1 }' | sort -u)
wrong=0
while read -r name; do
    [ -z "$name" ] || { echo "fails: $name"; wrong=1; }
done < <(comm -23 <(echo "$failed") <(echo "$known"))
while read -r name; do
    [ -z "$name" ] || { echo "does not fail any more, and is in known.txt: $name"; wrong=1; }
done < <(comm -13 <(echo "$failed") <(echo "$known"))
tail -n 1 "$folder/output.txt"
grep -q ' passed' <(tail -n 1 "$folder/output.txt") || wrong=1
exit $wrong
