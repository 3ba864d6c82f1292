# Starts a server for the tests of others, and waits until it is there. To be sourced, by bash.
#
# Whoever sources it has `give_up`, which ends the script with what it is told.

# To a server they would be flags of its own.
unset "${!LATCHD_@}"

# start SERVER LOG [FLAGS…]: starts a program on a free port of 127.0.0.1, with these flags. Sets `pid`, `port` and
# `address`.
start() {
    local server=$1 log=$2
    shift 2
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    "$server" -l 127.0.0.1 -p "$port" "$@" >"$log" 2>&1 &
    # shellcheck disable=SC2034 # for whoever sources this
    pid=$! address=127.0.0.1:$port
}

# await ADDRESS: waits until somebody listens on it, ten seconds at most.
await() {
    local host=${1%:*} port=${1##*:}
    for _ in $(seq 100); do
        (exec 3<>"/dev/tcp/$host/$port") 2>/dev/null && return
        sleep 0.1
    done
    give_up "nobody listens on $1"
}
