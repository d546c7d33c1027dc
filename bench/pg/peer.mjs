// What the two Node peers share: the verbs of the benchmark, and counting jobs for it.
// node X_peer.mjs DSN setup | fill N | submit N | work TICKS
import fs from 'node:fs';
import { createRequire } from 'node:module';

export const need = createRequire(process.env.PEER_MODULES + '/package.json');
const BULK = 1000;
const record = Buffer.alloc(16);
let file = null, first = 0n, count = 0n, scheduled = false;

function flush() {
  scheduled = false;
  record.writeBigInt64LE(first, 0);
  record.writeBigInt64LE(count, 8);
  fs.writeSync(file, record, 0, 16, 0);
}

export function tick() {
  first ||= process.hrtime.bigint();
  count += 1n;
  if (!scheduled) { scheduled = true; setImmediate(flush); }
}

const timed = async work => {
  const before = process.hrtime.bigint();
  await work();
  console.log(JSON.stringify({ seconds: Number(process.hrtime.bigint() - before) / 1e9 }));
};

export async function main({ setup, open, close, submit, bulk, work }) {
  const [dsn, verb, rest] = process.argv.slice(2);
  if (verb === 'setup') { await setup(dsn); process.exit(0); }
  if (verb === 'work') {
    file = fs.openSync(rest, 'w+');
    fs.writeSync(file, record, 0, 16, 0);
    const stop = await work(dsn);
    process.on('SIGTERM', async () => { await stop(); process.exit(0); });
    return;
  }
  const client = await open(dsn), total = Number(rest);
  if (verb === 'fill') await timed(async () => {
    for (let start = 0; start < total; start += BULK)
      await bulk(client, Array.from({ length: BULK }, (_, n) => start + n));
  });
  if (verb === 'submit') {
    await submit(client, 0);
    await timed(async () => { for (let n = 0; n < total; n++) await submit(client, n); });
  }
  await close(client);
  process.exit(0);
}
