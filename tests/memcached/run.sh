#!/usr/bin/env bash
# Runs memcached's own tests against a server: every t/*.t of a checkout of memcached 1.6.45, and its testapp.
#
#   run.sh SERVER-PROGRAM [CHECKOUT] [NAME…]
#
# CHECKOUT is memcached's source as it is in version control (default: $TEST_MEMCACHED_SOURCE). Nothing is written in
# it. Names (`watcher.t`, `testapp`) select tests. known.txt beside this file lists each known difference with its reason:
# any other difference fails, and so does a listed one that no longer occurs. Tests for a special build (extstore, proxy)
# skip themselves; others are skipped as known.txt says. patches/ changes the copy where a test could not go on, each with
# its reason.
#
# Needs perl, patch, a C compiler and libevent's headers (Debian: libevent-dev). TEST_MEMCACHED_JOBS tests run at a time (4),
# TEST_MEMCACHED_DIR (default: target/memcached) holds what each printed. Exits 1 if something differs, 2 if it cannot
# begin.

set -u -o pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${TEST_MEMCACHED_DIR:-$here/../../target/memcached}
jobs=${TEST_MEMCACHED_JOBS:-4}
known=$here/known.txt

# The longest that one file may take, in seconds: conn-limits.t and the like wait for seconds, none for a minute.
limit_s=60

give_up() {
    echo "run.sh: $*" >&2
    exit 2
}

server=${1:-}
[ -n "$server" ] || give_up "which server? A program, then memcached's source"
[ -x "$server" ] || give_up "$server is no program"
server=$(cd "$(dirname "$server")" && pwd)/$(basename "$server")
shift
if [ $# -gt 0 ] && [ -d "$1" ]; then
    source=$1
    shift
else
    source=${TEST_MEMCACHED_SOURCE:-}
fi
[ -e "$source/t/lib/MemcachedTest.pm" ] || give_up "no memcached source: name a checkout of 1.6.45, or set TEST_MEMCACHED_SOURCE"
source=$(cd "$source" && pwd)
# To a server they would be flags of its own.
unset "${!LATCHD_@}"
command -v perl >/dev/null || give_up "perl is missing"
command -v patch >/dev/null || give_up "patch is missing"
compiler=${CC:-cc}

# A folder as memcached's build leaves one: the tests, timedrun, testapp, and the server under memcached's name.
rm -rf "$folder" && mkdir -p "$folder" || give_up "cannot make $folder"
folder=$(cd "$folder" && pwd)
cp -R "$source/t" "$source/testapp.c" "$folder" || give_up "cannot copy the tests"
for file in "$here"/patches/*.patch; do
    patch -s -d "$folder" -p1 -i "$file" || give_up "$file does not fit: is this memcached 1.6.45?"
done
ln -s "$server" "$folder/memcached-debug"
"$compiler" -o "$folder/timedrun" "$source/timedrun.c" || give_up "timedrun.c does not compile"
# The results of configure on any Linux that runs this, as far as testapp needs them.
mkdir "$folder/include"
cat >"$folder/include/config.h" <<'END'
#define _GNU_SOURCE 1
#define ENDIAN_LITTLE 1
#define HAVE_GCC_ATOMICS 1
#define HAVE_STDBOOL_H 1
#define HAVE_INTTYPES_H 1
#define SIZEOF_VOID_P 8
#define VERSION "1.6.45"
END
# shellcheck disable=SC2086 # a list of sources
(cd "$source" && "$compiler" -w -pthread -include stdbool.h -include inttypes.h -I "$folder/include" -o "$folder/testapp" \
    -I . "$folder/testapp.c" util.c stats_prefix.c jenkins_hash.c murmur3_hash.c cache.c crc32c.c) ||
    give_up "testapp.c does not compile (Debian: libevent-dev)"

# A name's rows of known.txt: `NAME WHAT REASON…`.
rows() {
    grep -v '^#' "$known" | awk -v name="$1" '$1 == name { print $2 }'
}

# Runs one file, and leaves NAME.failed: a line a difference, in the words of known.txt.
run_one() {
    local name=$1 out=$folder/$1.out
    cd "$folder" || return
    if [ "$name" = testapp ]; then
        set -- ./testapp
    else
        set -- perl -I t/lib "t/$name"
    fi
    timeout -k 5 "$limit_s" "$@" >"$out" 2>"$folder/$name.err" &
    local group=$!
    wait "$group" 2>/dev/null
    local code=$?
    # A test that has ended by an assertion has left its server behind, in the group that timeout has made.
    kill -- -"$group" 2>/dev/null
    {
        grep -a -v '# TODO' "$out" | sed -n 's/^not ok \([0-9]*\).*/\1/p'
        # A test file that ended early has reported only a part of its results.
        if ! grep -a -q '^1\.\.0 *# *SKIP' "$out"; then
            local planned told
            planned=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' "$out" | tail -n 1)
            told=$(grep -a -c '^\(ok\|not ok\) ' "$out")
            if [ "${planned:-none}" != "$told" ] || [ "$code" -ge 124 ]; then echo end; fi
        fi
    } >"$folder/$name.failed"
}
export -f run_one
export folder limit_s

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    names=(testapp)
    for file in "$source"/t/*.t; do names+=("$(basename "$file")"); done
fi
chosen=()
left_out=0
for name in "${names[@]}"; do
    if rows "$name" | grep -qx skip; then left_out=$((left_out + 1)); else chosen+=("$name"); fi
done
printf '%s\n' "${chosen[@]}" | xargs -P "$jobs" -I '{}' bash -c 'run_one {}'

passed=0 skipped=0 expected=0 wrong=0
for name in "${chosen[@]}"; do
    failed=$folder/$name.failed
    [ -e "$failed" ] || give_up "$name was not run"
    passed=$((passed + $(grep -a -c '^ok ' "$folder/$name.out")))
    if grep -a -q '^1\.\.0 *# *SKIP' "$folder/$name.out"; then skipped=$((skipped + 1)); fi
    while read -r what; do
        if rows "$name" | grep -qx -- "$what"; then
            expected=$((expected + 1))
        else
            wrong=$((wrong + 1))
            echo "differs: $name $what $(sed -n "s/^not ok $what *-* *//p" "$folder/$name.out" | head -n 1 | cut -c 1-80)"
        fi
    done <"$failed"
    while read -r what; do
        if ! grep -qx -- "$what" "$failed" && ! rows "$name" | grep -qx maybe; then
            wrong=$((wrong + 1))
            echo "does not differ any more, and is in known.txt: $name $what"
        fi
    done < <(rows "$name")
done
echo "${#chosen[@]} files, $skipped of which skip themselves; $left_out left out; $passed tests passed, $expected differ as expected, $wrong otherwise"
[ "$wrong" -eq 0 ] && [ "$passed" -gt 0 ]
