#!/usr/bin/env bash
# Checks packaging/grafana and packaging/prometheus against the `/metrics` of a server.
#
#   monitoring.sh SERVER-PROGRAM
#
# Each metric that they name must exist. Only members of a cluster have its metrics: if etcd is installed (Debian:
# etcd-server), a member runs too; otherwise they must be in the source. If promtool is installed (Debian: prometheus), it
# checks the alerts; if prometheus is, it scrapes the servers, and each query of the dashboard must have a result, each
# alert an evaluation without an error.

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
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
status=$(free_port)
start "$1" "$folder/server.txt" --status "127.0.0.1:$status" -Z -o "ssl_chain_cert=$folder/certificate.pem,ssl_key=$folder/key.pem"
pids+=("$pid")
await "$address"
await "127.0.0.1:$status"

curl -fsS "http://127.0.0.1:$status/metrics" >"$folder/metrics"

# A member of a cluster, which is primary.
single=$address member=
if command -v etcd >/dev/null; then
    client=$(free_port)
    etcd --data-dir "$folder/etcd" --listen-client-urls "http://127.0.0.1:$client" --advertise-client-urls "http://127.0.0.1:$client" \
        --listen-peer-urls "http://127.0.0.1:$(free_port)" >"$folder/etcd.txt" 2>&1 &
    pids+=($!)
    await "127.0.0.1:$client"
    authority=(--authority "http://127.0.0.1:$client" --cluster monitoring)
    for _ in $(seq 50); do
        "$1" cluster init "${authority[@]}" cache-a:11211 >"$folder/init.txt" 2>&1 && break
        sleep 0.2
    done
    mkdir "$folder/state"
    member=$(free_port)
    start "$1" "$folder/member.txt" --status "127.0.0.1:$member" "${authority[@]}" --partition cache-a:11211 --state "$folder/state"
    pids+=("$pid")
    await "127.0.0.1:$member"
    await "$address"
    curl -fsS "http://127.0.0.1:$member/metrics" | grep '^latchd_cluster_' >>"$folder/metrics" || give_up "$(cat "$folder/init.txt" "$folder/member.txt")"
else
    echo "skipped: a member of a cluster (Debian: etcd-server)"
fi

# Every expression, one a line. Grafana's variables get values. Without a member, nothing is to be had of a cluster.
expressions() {
    python3 - "$dashboard" "$alerts" "$cluster" <<'END'
import json, re, sys
panels = json.load(open(sys.argv[1]))["panels"]
for panel in [inner for panel in panels for inner in panel.get("panels") or [panel]]:
    for target in panel["targets"]:
        print("query\t" + target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m"))
for alerts in sys.argv[2:]:
    text = re.sub(r"\n {10,}(?=[a-z+])(?!summary|description)", " ", open(alerts).read())
    for expression in re.findall(r"expr: >?\s*(.*)", text):
        print("alert\t" + expression.strip())
END
}
expressions >"$folder/expressions"
missing=0
for name in $(grep -oE '\b(memcached|latchd|process)_[a-z_]+' "$folder/expressions" | sort -u); do
    if [[ -z $member && $name == latchd_cluster_* ]]; then
        family=${name#latchd_} sources=(shell/server/src/status/metrics.rs shell/server/src/status/metrics/families.rs)
        grep -qE "\"(latchd_)?${family%_bucket}\"" "${sources[@]}"
    else
        grep -qE "^$name[ {]" "$folder/metrics"
    fi || { echo "not in /metrics: $name"; missing=1; }
done
[ $missing -eq 0 ] || exit 1
echo "$(wc -l <"$folder/expressions") expressions name metrics that exist"

if command -v promtool >/dev/null; then promtool check rules "$alerts" "$cluster"; else echo "skipped: promtool (Debian: prometheus)"; fi
if ! command -v prometheus >/dev/null; then
    echo "skipped: evaluation (Debian: prometheus)"
    exit
fi

# Some load, so that every rate and quantile has a value.
python3 - "${single%:*}" "${single##*:}" 2>/dev/null <<'END' &
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
rule_files: [$PWD/$alerts, $PWD/$cluster]
scrape_configs:
  - job_name: latchd
    static_configs:
      - targets: ["127.0.0.1:$status"]
      - targets: [${member:+"\"127.0.0.1:$member\""}]
        labels: { partition: "cache-a:11211" }
END
web=$(free_port)
prometheus --config.file="$folder/prometheus.yml" --storage.tsdb.path="$folder/data" --web.listen-address="127.0.0.1:$web" \
    >"$folder/prometheus.txt" 2>&1 &
pids+=($!)
await "127.0.0.1:$web"
# A query of the dashboard has a number within a minute: rates need two scrapes, quantiles some ended locks.
python3 - "$web" "$folder/expressions" "$member" <<'END'
import json, sys, time, urllib.parse, urllib.request
has_member = bool(sys.argv[3])
end, failed, lines = time.monotonic() + 60, 0, open(sys.argv[2]).read().splitlines()
def numbers(expression):
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/api/v1/query?{query}") as reply:
        return [float(sample["value"][1]) for sample in json.load(reply)["data"]["result"]]
for line in lines:
    kind, expression = line.split("\t")
    if "latchd_cluster_" in expression and not has_member:
        kind = "alert"
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
