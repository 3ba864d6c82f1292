#!/usr/bin/env bash
# Runs the clients of other projects and the recipes of docs/recipes against a server, and counts the facts that hold.
#
#   run.sh [--text] [--all] SERVER-PROGRAM    starts the program as `PROGRAM -l 127.0.0.1 -p PORT`
#   run.sh [--text] --address HOST:PORT   uses a server that is there; everything in it is flushed
#
# --text leaves out the clients of the binary protocol, and the recipes. --all fails if Go or Java is missing; otherwise a
# line says that their recipes were skipped. EXTRA_ARGS holds more arguments for the program. The clients are installed
# below $TEST_CLIENTS_DIR (default: target/clients); Debian must have openssl, libmemcached-tools, libmemcached-dev,
# memcached, nutcracker, haproxy, python3-venv, npm, php-cli, php-memcached and ruby-dalli; for --all also golang-go,
# golang-github-bradfitz-gomemcache-dev, default-jdk-headless and libspymemcached-java.
#
# Prints one line a fact and at the end `N passed, N failed`; exits 1 if a fact does not hold, and
# 2 if it cannot begin.

set -u -o pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${TEST_CLIENTS_DIR:-$here/../../target/clients}
# shellcheck source=../start.sh
. "$here/../start.sh"
binary=yes
all=no
server=
address=

give_up() {
    echo "run.sh: $*" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
        --text) binary=no ;;
        --all) all=yes ;;
        --address) address=${2:-} && shift ;;
        -*) give_up "there is no option $1" ;;
        *) server=$1 ;;
    esac
    shift
done
[ -n "$server$address" ] || give_up "which server? A program, or --address HOST:PORT"

mkdir -p "$folder" || give_up "cannot make $folder"
folder=$(cd "$folder" && pwd)
output=$folder/output.txt
: >"$output"

# The programs the clients are, at the versions the scripts were written against.
command -v memccapable >/dev/null || give_up "memccapable is missing (Debian: libmemcached-tools)"
if [ ! -e "$folder/python/ready" ]; then
    python3 -m venv "$folder/python" || give_up "no venv (Debian: python3-venv)"
    packages=(pymemcache==4.0.0 meta-memcache==4.3.0)
    [ $binary = yes ] && packages+=(pylibmc==1.6.3 python-binary-memcached==0.33.0)
    "$folder/python/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2 ||
        give_up "the Python clients cannot be installed"
    [ $binary = yes ] && touch "$folder/python/ready"
fi
if [ $binary = yes ] && [ ! -e "$folder/node/node_modules/memcached" ]; then
    npm install --silent --no-audit --no-fund --prefix "$folder/node" memjs@1.3.2 memcached@2.2.2 >&2 ||
        give_up "the clients of node cannot be installed"
fi

pid=
stop() {
    if [ -n "$pid" ]; then
        kill "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
        pid=
    fi
}
trap stop EXIT

# Starts the program, with these flags, and waits for it.
begin() {
    # shellcheck disable=SC2086 # EXTRA_ARGS is a list
    start "$server" "$folder/server.txt" ${EXTRA_ARGS:-} "$@"
    await "$address"
    host=${address%:*} port=${address##*:}
}

if [ -n "$server" ]; then
    begin
else
    await "$address"
    host=${address%:*} port=${address##*:}
fi

# Runs a script of facts; its lines are counted at the end.
facts() {
    local name=$1
    shift
    local before after
    echo "# $name"
    before=$(grep -c 'ok - ' "$output")
    timeout 120 "$@" 2>&1 | sed -u "s/^\(ok\|not ok\) - /\1 - $name: /" | tee -a "$output"
    local code=${PIPESTATUS[0]}
    if [ "$code" -gt 1 ]; then
        echo "not ok - $name: ended with $code" | tee -a "$output"
    fi
    after=$(grep -c 'ok - ' "$output")
    if [ "$after" -le "$before" ]; then
        echo "not ok - $name: showed no fact" | tee -a "$output"
    fi
}

# memccapable prints `NAME  [pass]` or `NAME  [FAIL]`, in this form or with colours.
capable() {
    set -o pipefail
    timeout 120 memccapable -h "$host" -p "$port" "$@" 2>&1 |
        sed -u -e 's/\x1b\[[0-9;]*m//g' \
            -e 's/^\(.*[^ ]\) *\[pass\]$/ok - \1/' \
            -e 's/^\(.*[^ ]\) *\[FAIL\].*$/not ok - \1: memccapable says FAIL/' \
            -e 's/^\(.*[^ ]\) *\[skip\].*$/not ok - \1: memccapable skipped it/'
}
export -f capable
export host port

python=$folder/python/bin/python
if [ $binary = yes ]; then
    facts memccapable bash -c capable
else
    facts memccapable bash -c 'capable -a'
fi
facts pymemcache "$python" "$here/pymemcache_text.py" "$host" "$port"
facts meta-memcache "$python" "$here/meta_memcache_stampede.py" "$host" "$port"
if [ $binary = yes ]; then
    facts pylibmc "$python" "$here/pylibmc_binary.py" "$host" "$port"
    facts bmemcached "$python" "$here/bmemcached_binary.py" "$host" "$port"
    NODE_PATH=$folder/node/node_modules facts memjs node "$here/memjs_binary.js" "$host" "$port"
fi
stop

# Servers with flags of their own, if they are ours to start.
if [ -n "$server" ]; then
    command -v nutcracker >/dev/null || give_up "nutcracker is missing (Debian: nutcracker)"
    command -v haproxy >/dev/null || give_up "haproxy is missing (Debian: haproxy)"
    for words in locked not_stored; do
        begin -o "locked_reply=$words"
        if [ $binary = yes ]; then
            facts "$words, Python" "$python" "$here/locked_words.py" "$host" "$port" "$words"
            NODE_PATH=$folder/node/node_modules facts "$words, node" \
                node "$here/locked_words.js" "$host" "$port" "$words"
        fi
        [ "$words" = locked ] &&
            facts nutcracker "$python" "$here/nutcracker_errors.py" "$host" "$port" "$folder" &&
            facts proxies "$python" "$here/proxies.py" "$host" "$port" "$folder"
        stop
    done
    key=$folder/key.pem
    certificate=$folder/certificate.pem
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$key" -out "$certificate" 2>/dev/null ||
        give_up "no certificate can be made (Debian: openssl)"
    tls=(-Z -o "ssl_chain_cert=$certificate,ssl_key=$key")
    begin "${tls[@]}"
    facts s_client bash "$here/s_client.sh" "$host" "$port" "$certificate"
    facts pymemcache-tls "$python" "$here/pymemcache_tls.py" "$host" "$port" "$certificate"
    stop
    if [ $binary = yes ]; then
        echo fred:pass >"$folder/passwords"
        begin "${tls[@]}" -S -Y "$folder/passwords"
        facts bmemcached-sasl "$python" "$here/bmemcached_sasl.py" "$host" "$port" "$certificate"
        stop
    fi
fi

# recipe NAME COMMAND…: on a latchd, which the script ends, and the leased lock on a memcached as well.
recipe() {
    local name=$1
    shift
    begin -o locked_reply=not_stored
    facts "recipe, $name" "$@" "$host" "$port" "$pid"
    stop
    start memcached "$folder/memcached.txt" -u "$(id -un)"
    await "$address"
    facts "recipe, $name, memcached" "$@" "${address%:*}" "${address##*:}"
    stop
}

# Go and Java are large, so they may be missing.
missing() {
    [ $all = no ] || give_up "$1"
    echo "# skipped: $1"
}

if [ -n "$server" ] && [ $binary = yes ]; then
    command -v memcached >/dev/null || give_up "memcached is missing (Debian: memcached)"
    php --ri memcached >/dev/null 2>&1 || give_up "memcached's client of PHP is missing (Debian: php-cli, php-memcached)"
    ruby -e 'require "dalli"' 2>/dev/null || give_up "dalli is missing (Debian: ruby-dalli)"
    recipe Python "$python" "$here/recipes/locks.py"
    NODE_PATH=$folder/node/node_modules recipe Node node "$here/recipes/locks.js"
    recipe PHP php "$here/recipes/locks.php"
    recipe Ruby ruby "$here/recipes/locks.rb"
    library=/usr/share/gocode/src/github.com/bradfitz/gomemcache
    if command -v go >/dev/null && [ -e $library ]; then
        mkdir -p "$folder/go/src/latchd" "$folder/go/src/locks"
        cp "$here"/../../docs/recipes/go/*.go "$folder/go/src/latchd/"
        cp "$here/recipes/locks.go" "$folder/go/src/locks/"
        GO111MODULE=off GOFLAGS='' GOPATH=$folder/go:/usr/share/gocode go build -o "$folder/go/locks" locks ||
            give_up "the recipe of Go does not compile"
        recipe Go "$folder/go/locks"
    else
        missing "the recipe of Go (Debian: golang-go, golang-github-bradfitz-gomemcache-dev)"
    fi
    library=/usr/share/java/spymemcached.jar
    if command -v javac >/dev/null && [ -e $library ]; then
        javac -cp $library -d "$folder/java" "$here"/../../docs/recipes/java/*.java "$here/recipes/Locks.java" ||
            give_up "the recipe of Java does not compile"
        recipe Java java -cp "$folder/java:$library" Locks
    else
        missing "the recipe of Java (Debian: default-jdk-headless, libspymemcached-java)"
    fi
fi

passed=$(grep -c '^ok - ' "$output")
failed=$(grep -c '^not ok - ' "$output")
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
