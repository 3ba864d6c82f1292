// A leased lock by `add` and `cas`, with the package `memcached`: on latchd and on memcached.
"use strict";
const { randomBytes } = require("crypto");
const { setTimeout: sleep } = require("timers/promises");
const { promisify } = require("util");

class Held extends Error {} // another client holds the lock
class Lost extends Error {} // the lock ended before its holder released it

/** Runs `job({ held, renew })` under the lock. The job renews it in time, and asks `held()` before each step. */
async function withLease(client, key, job, { ttl = 30, waitMs = 0 } = {}) {
  const call = (name, ...values) => promisify(client[name]).call(client, ...values);
  const token = randomBytes(16).toString("base64url");
  const exptime = Math.ceil(ttl * 1.01) + 1; // the server's clock may be faster
  let until = 0;

  const held = () => performance.now() < until;
  const lasts = async (request) => {
    const sent = performance.now();
    const done = await request();
    if (done) until = sent + ttl * 1000; // from the request on, not from the reply
    return done;
  };
  const add = () => call("add", key, token, exptime).catch((error) => !error.notStored && Promise.reject(error));
  const cas = async (time) => {
    const item = await call("gets", key);
    return item?.[key] === token && call("cas", key, token, item.cas, time);
  };
  const renew = async () => {
    if (!(await lasts(() => cas(exptime)))) throw new Lost(key);
  };

  const end = performance.now() + waitMs;
  while (!(await lasts(add))) {
    if (performance.now() >= end) throw new Held(key);
    await sleep(20 + 180 * Math.random());
  }
  let result;
  try {
    result = await job({ held, renew });
  } catch (error) {
    await cas(-1).catch(() => false); // it expires by itself
    throw error;
  }
  if (!(await cas(-1))) throw new Lost(key); // removes the item, only if it is still ours
  return result;
}

module.exports = { Held, Lost, withLease };
