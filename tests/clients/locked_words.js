// What memjs and node's memcached make of an item that another connection has locked. The third argument is that of
// `-o locked_reply`.
"use strict";

const net = require("net");
const memjs = require("memjs");
const Memcached = require("memcached");

const [host, port, reply] = process.argv.slice(2);
const plain = reply === "not_stored";
const QUIET = { log: () => {} };
// memcached's client never calls back on a word that it does not know.
const PATIENCE_MS = 3000;

function equal(name, got, expected) {
    const [seen, wanted] = [JSON.stringify(got), JSON.stringify(expected)];
    console.log(seen === wanted ? `ok - ${name}` : `not ok - ${name}: got ${seen}, expected ${wanted}`);
    process.exitCode ||= seen === wanted ? 0 : 1;
}

function told(ask) {
    return new Promise((resolve) => {
        ask((error, value) => resolve(error ? "error" : value));
        setTimeout(() => resolve("silence"), PATIENCE_MS).unref();
    });
}

async function main() {
    const client = memjs.Client.create(`${host}:${port}`, { retries: 0, logger: QUIET });
    equal("memjs: set", await told((done) => client.set("k", "2", {}, done)), "error");
    equal("memjs: delete", await told((done) => client.delete("k", done)), plain ? false : "error");
    const old = new Memcached(`${host}:${port}`, { timeout: PATIENCE_MS, retries: 0 });
    const version = await told((done) => old.version((error, servers) => done(error, servers[0].version)));
    equal("memcached: version", version, "1.6.45");
    equal("memcached: set", await told((done) => old.set("k", "2", 0, done)), plain ? "error" : "silence");
    equal("memcached: get after that", await told((done) => old.get("k", done)), plain ? "1" : "silence");
    process.exit();
}

const holder = net.connect(port, host, () => holder.write("flush_all\r\nset k 0 0 1\r\n1\r\nlock k\r\n"));
let seen = "";
holder.on("data", (bytes) => {
    seen += bytes;
    if (seen === "OK\r\nSTORED\r\nOK\r\n") main();
});
