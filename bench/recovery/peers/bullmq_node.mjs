// BullMQ in Node: its defaults; or a lock of one second, checked twice a second.
import { appendFileSync } from "node:fs";
import { Queue, Worker } from "bullmq";

const { RECOVERY_URL, RECOVERY_SETTING, RECOVERY_NOTES } = process.env;
const { hostname, port, pathname } = new URL(RECOVERY_URL);
const connection = { host: hostname, port: Number(port), db: Number(pathname.slice(1)), maxRetriesPerRequest: null };
const short = RECOVERY_SETTING === "fastest" ? { lockDuration: 1000, stalledInterval: 500 } : {};

if (process.argv[2] === "submit") {
  const queue = new Queue("recovery", { connection });
  await queue.add("endless", {});
  await queue.close();
} else {
  const endless = async () => {
    appendFileSync(RECOVERY_NOTES, `${process.pid} ${Number(process.hrtime.bigint()) / 1e9}\n`);
    await new Promise((resolve) => setTimeout(resolve, 3_600_000));
  };
  new Worker("recovery", endless, { connection, ...short });
}
