// Locks, fenced writes and cached values on latchd, with node's `net`. A leased lock: lease.js.
"use strict";
const net = require("net");

class Held extends Error {} // another client holds the lock, or waiting for it would be a deadlock (` d`)
class Lost extends Error {} // the lock ended before its holder released it

class Connection {
  #input = Buffer.alloc(0);
  #asked = []; // requests without a reply
  #cause;

  constructor({ host = "127.0.0.1", port = 11211 } = {}) {
    this.socket = net.connect({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 5000 });
    this.socket.on("data", (bytes) => this.#read(bytes)).on("error", (cause) => (this.#cause = cause));
    this.socket.on("timeout", () => this.#asked.length && this.socket.destroy());
    this.ended = new Promise((resolve) => this.socket.once("close", resolve));
    this.ended.then(() => this.#asked.forEach(({ reject }) => reject(this.#lost())));
  }

  /** The words of the reply, and its value if it has one. The server may take `waitMs`. */
  ask(line, body, waitMs = 0) {
    if (this.socket.destroyed) return Promise.reject(this.#lost());
    this.socket.setTimeout(Math.max(waitMs, ...this.#asked.map((asked) => asked.waitMs)) + 5000); // never below a wait
    this.socket.write(`${line}\r\n`);
    if (body !== undefined) this.socket.write(Buffer.concat([body, Buffer.from("\r\n")]));
    return new Promise((resolve, reject) => this.#asked.push({ resolve, reject, waitMs }));
  }

  #lost() {
    return new Lost("the connection has ended", { cause: this.#cause });
  }

  #read(bytes) {
    this.#input = Buffer.concat([this.#input, bytes]);
    for (let start; (start = this.#input.indexOf("\r\n") + 2) > 1; ) {
      const words = this.#input.toString("latin1", 0, start - 2).split(" ");
      const end = words[0] === "VA" ? start + Number(words[1]) + 2 : start;
      if (this.#input.length < end) return;
      const { resolve, reject } = this.#asked.shift() ?? { resolve() {}, reject() {} };
      if (words[0].endsWith("ERROR")) reject(new Error(words.join(" ")));
      else resolve({ words, value: end > start ? this.#input.subarray(start, end - 2) : null });
      this.#input = this.#input.subarray(end);
    }
  }

  /** The value of `key`: one client computes it, `early` s before it expires, and the others wait for it. */
  async cached(key, ttl, compute, { early = 10, waitMs = 10000 } = {}) {
    const { words, value } = await this.ask(`mg ${key} v c N${ttl} R${early} B w${waitMs}`, undefined, waitMs);
    if (!words.includes("W")) return value?.length || !words.includes("Z") ? value : compute(); // Z: the winner is slow
    const made = Buffer.from(await compute()); // if this client dies, the next one wins
    const cas = words.find((word) => word.startsWith("c")).slice(1);
    await this.ask(`ms ${key} ${made.length} C${cas} T${ttl}`, made); // not stored if the item has changed since
    return made;
  }

  /** Stores over any connection, only while this grant is in force. */
  async fencedSet(key, value, fence, ttl = 0) {
    const body = Buffer.from(value);
    return (await this.ask(`ms ${key} ${body.length} G${fence} T${ttl}`, body)).words[0] === "HD";
  }
}

/** Runs `job({ fence, signal })` under the lock. The server releases it when this process or its machine dies. */
async function withLock(key, job, { waitMs = 0, ...server } = {}) {
  const connection = new Connection(server);
  try {
    const { words } = await connection.ask(`ml ${key} F w${waitMs}`, undefined, waitMs); // first come, first served
    if (words[0] !== "HD") throw new Held(words.join(" "));
    const lost = new AbortController();
    connection.ended.then(() => lost.abort(new Lost(key)));
    const result = await job({ fence: BigInt(words[1].slice(1)), signal: lost.signal }); // the fence is above 2^53
    if ((await connection.ask(`mu ${key}`)).words[0] !== "HD") throw new Lost(key);
    return result;
  } finally {
    connection.socket.destroy();
  }
}

module.exports = { Connection, Held, Lost, withLock };
