// memjs: the binary protocol from node. Called as `node memjs_binary.js HOST PORT`.

const assert = require('node:assert');
const memjs = require('memjs');

const [host, port] = process.argv.slice(2);
let failed = 0;

async function fact(name, body) {
  try {
    await body();
    console.log(`ok - ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`not ok - ${name}: ${error.message.split('\n')[0]}`);
  }
}

const text = async (client, key) => {
  const { value } = await client.get(key);
  return value === null ? null : value.toString();
};

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function main() {
  const silent = { log() {} };
  const client = memjs.Client.create(`${host}:${port}`, { logger: silent, timeout: 10, retries: 0 });
  await client.flush();
  await fact('get: miss', async () => assert.strictEqual(await text(client, 'a'), null));
  await fact('set and get', async () => {
    assert.strictEqual(await client.set('a', 'one', {}), true);
    assert.strictEqual(await text(client, 'a'), 'one');
  });
  await fact('set: any bytes', async () => {
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
    await client.set('b', bytes, {});
    assert.deepStrictEqual((await client.get('b')).value, bytes);
  });
  await fact('set: empty', async () => {
    await client.set('e', '', {});
    assert.strictEqual(await text(client, 'e'), '');
  });
  await fact('add', async () => {
    assert.strictEqual(await client.add('a', 'two', {}), false);
    assert.strictEqual(await client.add('new', 'two', {}), true);
  });
  await fact('replace', async () => {
    assert.strictEqual(await client.replace('a', 'b', {}), true);
    assert.strictEqual(await client.replace('none', 'b', {}), false);
  });
  // Its prepend sends the opcode of append (memjs 1.3.2), so there is no fact about it.
  await fact('append', async () => {
    assert.strictEqual(await client.append('a', 'c'), true);
    assert.strictEqual(await text(client, 'a'), 'bc');
    await assert.rejects(client.append('none', 'c'), /not stored/);
  });
  await fact('delete', async () => {
    assert.strictEqual(await client.delete('a'), true);
    assert.strictEqual(await client.delete('a'), false);
  });
  await fact('increment and decrement', async () => {
    assert.strictEqual((await client.increment('n', 5, { initial: 10 })).value, 10);
    assert.strictEqual((await client.increment('n', 5, { initial: 10 })).value, 15);
    assert.strictEqual((await client.decrement('n', 20, { initial: 10 })).value, 0);
  });
  await fact('touch', async () => {
    await client.set('t', '1', { expires: 1 });
    assert.strictEqual(await client.touch('t', 100), true);
    assert.strictEqual(await client.touch('none', 100), false);
  });
  await fact('expiry', async () => {
    await client.set('short', '1', { expires: 1 });
    await client.set('long', '1', { expires: 100 });
    await sleep(2500);
    assert.strictEqual(await text(client, 'short'), null);
    assert.strictEqual(await text(client, 'long'), '1');
    assert.strictEqual(await text(client, 't'), '1');
  });
  await fact('a large value', async () => {
    const large = 'x'.repeat(1000000);
    assert.strictEqual(await client.set('big', large, {}), true);
    assert.strictEqual(await text(client, 'big'), large);
  });
  await fact('many at once', async () => {
    const keys = Array.from({ length: 200 }, (_, n) => `k${n}`);
    await Promise.all(keys.map((key) => client.set(key, `value of ${key}`, {})));
    const values = await Promise.all(keys.map((key) => text(client, key)));
    assert.deepStrictEqual(values, keys.map((key) => `value of ${key}`));
  });
  await fact('stats', async () => {
    const stats = await new Promise((resolve, reject) =>
      client.stats((error, _server, found) => (error ? reject(error) : resolve(found))));
    assert.ok('curr_items' in stats, Object.keys(stats).join(' '));
  });
  await fact('flush', async () => {
    await client.flush();
    assert.strictEqual(await text(client, 'k1'), null);
  });
  client.close();
}

main()
  .catch((error) => {
    failed += 1;
    console.log(`not ok - the script comes to its end: ${error}`);
  })
  .finally(() => process.exit(failed === 0 ? 0 : 1));
