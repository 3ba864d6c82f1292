#!/usr/bin/env bash
# openssl s_client. Called as `s_client.sh HOST PORT CERTIFICATE`.
set -u
ask() {
    printf 'set s 0 0 2\r\nhi\r\nget s\r\nquit\r\n' |
        timeout 20 openssl s_client -quiet -verify_return_error -connect "$1:$2" -CAfile "$3" "${@:4}" 2>/dev/null |
        tr -d '\r' | tr '\n' '|'
}
fact() {
    if [ "$2" = "$3" ]; then echo "ok - $1"; else echo "not ok - $1: got $2, expected $3"; fi
}
answer='STORED|VALUE s 0 2|hi|END|'
fact 'TLS 1.3' "$(ask "$@" -tls1_3)" "$answer"
fact 'TLS 1.2' "$(ask "$@" -tls1_2)" "$answer"
fact 'nothing older' "$(ask "$@" -tls1_1)" ''
fact 'a chosen cipher' "$(ask "$@" -tls1_2 -cipher ECDHE-ECDSA-CHACHA20-POLY1305)" "$answer"
