#!/usr/bin/env bash
# Checks packaging/grafana and packaging/prometheus against the `/metrics` of a server.
#
#   monitoring.sh SERVER-PROGRAM
#
# Each metric that they name must exist; those of a cluster must be in the source, as only its members have them. If
# promtool is installed (Debian: prometheus), it checks the alerts; if prometheus is, it scrapes the server, and each query
# of the dashboard must have a result, each alert an evaluation without an error.

set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
give_up() {
    echo "monitoring.sh: $*" >&2
    exit 1
}
[ $# -eq 1 ] || give_up "which server?"
# shellcheck source=start.sh
. "$here/start.sh"
folder=$(mktemp -d)
pids=()
stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" || true; done
    rm -r "$folder"
}
trap stop EXIT
dashboard=packaging/grafana/latchd.json alerts=packaging/prometheus/alerts.yml cluster=packaging/prometheus/cluster.yml

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -keyout "$folder/key.pem" -out "$folder/certificate.pem" 2>/dev/null || give_up "no certificate can be made"
status=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
start "$1" "$folder/server.txt" --status "127.0.0.1:$status" -Z -o "ssl_chain_cert=$folder/certificate.pem,ssl_key=$folder/key.pem"
pids+=("$pid")
await "$address"
await "127.0.0.1:$status"

# Every expression, one a line. Grafana's variables get values.
expressions() {
    python3 - "$dashboard" "$alerts" <<'END'
import json, re, sys
for panel in json.load(open(sys.argv[1]))["panels"]:
    for target in panel["targets"]:
        print("query\t" + target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m"))
text = re.sub(r"\n {10,}(?=[a-z+])(?!summary|description)", " ", open(sys.argv[2]).read())
for expression in re.findall(r"expr: >?\s*(.*)", text):
    print("alert\t" + expression.strip())
END
}
expressions >"$folder/expressions"
curl -fsS "http://127.0.0.1:$status/metrics" >"$folder/metrics"
missing=0
for name in $(grep -oE '\b(memcached|latchd|process)_[a-z_]+' "$folder/expressions" | sort -u); do
    grep -qE "^$name[ {]" "$folder/metrics" || { echo "not in /metrics: $name"; missing=1; }
done
for name in $(grep -oE '\blatchd_[a-z_]+' "$cluster" | sort -u); do
    grep -qF "\"${name#latchd_}\"" shell/server/src/status/metrics/families.rs || { echo "no metric of a cluster: $name"; missing=1; }
done
[ $missing -eq 0 ] || exit 1
echo "$(wc -l <"$folder/expressions") expressions name metrics that exist"

if command -v promtool >/dev/null; then promtool check rules "$alerts" "$cluster"; else echo "skipped: promtool (Debian: prometheus)"; fi
if ! command -v prometheus >/dev/null; then
    echo "skipped: evaluation (Debian: prometheus)"
    exit
fi

# Some load, so that every rate and quantile has a value.
python3 - "${address%:*}" "${address##*:}" 2>/dev/null <<'END' &
import socket, ssl, sys, time
tls = ssl._create_unverified_context()
one, other = (tls.wrap_socket(socket.create_connection(sys.argv[1:])) for _ in range(2))
while True:
    one.sendall(b"set a 0 0 1\r\nx\r\nget a none\r\nml job\r\n")
    other.sendall(b"ml job w1000\r\nmu job\r\nmg new N30\r\n")
    time.sleep(0.05)
    one.sendall(b"mu job\r\n")
    one.recv(4096), other.recv(4096)
END
pids+=($!)
cat >"$folder/prometheus.yml" <<END
global: { scrape_interval: 1s }
rule_files: [$PWD/$alerts]
scrape_configs: [{ job_name: latchd, static_configs: [{ targets: ["127.0.0.1:$status"] }] }]
END
web=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
prometheus --config.file="$folder/prometheus.yml" --storage.tsdb.path="$folder/data" --web.listen-address="127.0.0.1:$web" \
    >"$folder/prometheus.txt" 2>&1 &
pids+=($!)
await "127.0.0.1:$web"
# A query of the dashboard has a number within a minute: rates need two scrapes, quantiles some ended locks.
python3 - "$web" "$folder/expressions" <<'END'
import json, sys, time, urllib.parse, urllib.request
end, failed, lines = time.monotonic() + 60, 0, open(sys.argv[2]).read().splitlines()
def numbers(expression):
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/api/v1/query?{query}") as reply:
        return [float(sample["value"][1]) for sample in json.load(reply)["data"]["result"]]
for line in lines:
    kind, expression = line.split("\t")
    while True:
        found = numbers(expression)
        if kind == "alert" or any(number == number for number in found) or time.monotonic() > end:
            break
        time.sleep(0.5)
    holds = kind == "alert" or any(number == number for number in found)
    failed += not holds
    print("ok" if holds else "NO VALUE", kind, found[:2], expression)
sys.exit(failed > 0)
END
