// node add.mjs PORT PREFIX JOBS BATCH: add no-op jobs with addBulk, print how long it took.
import { Queue } from "bullmq";
const [port, prefix, jobs, batch] = process.argv.slice(2);
const connection = { host: "127.0.0.1", port: Number(port) };
const queue = new Queue("default", { prefix, connection });
await queue.waitUntilReady();
const began = performance.now();
for (let n = 0; n < Number(jobs); n += Number(batch))
  await queue.addBulk(
    Array.from({ length: Number(batch) }, (_, i) => ({ name: "noop", data: { n: n + i } })),
  );
console.log(JSON.stringify({ seconds: (performance.now() - began) / 1000 }));
await queue.close();
