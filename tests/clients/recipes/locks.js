// docs/recipes/node: called as `node locks.js HOST PORT [PID]`, as locks.py.
"use strict";
const Memcached = require("memcached");
const { Connection, Held, Lost, withLock } = require("../../../docs/recipes/node/latchd.js");
const lease = require("../../../docs/recipes/node/lease.js");

const [host, port, pid] = process.argv.slice(2);

function ok(name, holds, why = "") {
  console.log(holds ? `ok - ${name}` : `not ok - ${name}: ${why}`);
  process.exitCode ||= holds ? 0 : 1;
}

const throws = async (name, kind, call) => call.then((got) => ok(name, false, got), (error) => ok(name, error instanceof kind, error));

async function leases(client) {
  const get = () => new Promise((resolve) => client.get("leased", (_, value) => resolve(value)));
  await new Promise((resolve) => client.flush(resolve));
  await lease.withLease(client, "leased", async ({ held, renew }) => {
    await throws("lease: a second holder", lease.Held, lease.withLease(client, "leased", () => {}));
    await renew();
    ok("lease: held", held());
  });
  ok("lease: released", (await get()) === undefined, await get());
  await throws("lease: lost", lease.Lost, lease.withLease(client, "leased", async ({ renew }) => {
    await new Promise((resolve) => client.set("leased", "another", 0, resolve));
    await renew();
  }));
  ok("lease: the item of another holder stays", (await get()) === "another", await get());
}

async function locks() {
  const server = { host, port: Number(port) };
  const connection = new Connection(server);
  let fence, second;
  await withLock("job", async (lock) => {
    fence = lock.fence;
    await throws("lock: a second holder", Held, withLock("job", () => {}, server));
    second = withLock("job", (later) => later.fence, { waitMs: 10000, ...server });
    ok("lock: fenced write", await connection.fencedSet("job", "1", fence));
  }, server);
  ok("lock: the waiter has it, with a higher fence", (await second) > fence, fence);
  ok("lock: late fenced write", !(await connection.fencedSet("job", "2", fence)));
  const values = [await connection.cached("page", 100, () => "0"), await connection.cached("page", 100, () => "1")];
  ok("cached: computed once", values.join() === "0,0", values);
  await throws("cached: an error of the server", Error, connection.cached("k".repeat(251), 100, () => "0"));
  const long = connection.ask("ml beside F w60000", undefined, 60000);
  await Promise.all([long, connection.ask("mn"), connection.ask("mn")]);
  ok("a short request leaves the time of a waiting one", connection.socket.timeout >= 65000, connection.socket.timeout);
  ok("requests leave no listeners", connection.socket.listenerCount("timeout") === 1);
  await throws("lock: lost", Lost, withLock("job", ({ signal }) => new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason));
    process.kill(Number(pid), "SIGKILL");
  }), server));
}

async function main() {
  await leases(new Memcached(`${host}:${port}`, { retries: 0 }));
  if (pid) await locks();
}

main().catch((error) => ok("the script comes to its end", false, error.stack)).finally(() => process.exit());
