// node work.mjs PORT PREFIX CONCURRENCY: work no-op jobs until told to stop.
import { Worker } from "bullmq";
const [port, prefix, concurrency] = process.argv.slice(2);
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null };
const worker = new Worker("default", async (job) => job.data.n, {
  prefix,
  connection,
  concurrency: Number(concurrency),
});
process.on("SIGTERM", async () => {
  await worker.close(true);
  process.exit(0);
});
