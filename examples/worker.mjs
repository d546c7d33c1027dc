// A worker in plain Node (18 or newer): claims jobs over HTTP, renews their leases, answers.
// HOLDFAST_HTTP=http://127.0.0.1:8080 HOLDFAST_API_KEY=hf_... node worker.mjs
import os from "node:os";

const api = `${process.env.HOLDFAST_HTTP ?? "http://127.0.0.1:8080"}/api/v1`;
const headers = { "content-type": "application/json" };
if (process.env.HOLDFAST_API_KEY) headers.authorization = `Bearer ${process.env.HOLDFAST_API_KEY}`;
const worker_id = `node-${os.hostname()}-${process.pid}`;
let left = Number(process.env.JOBS ?? Infinity); // stop after so many jobs
process.on("SIGTERM", () => (left = 0));

const handlers = {
  greet: async ({ name }, context) => {
    await context.progress(50, "thinking of something nice");
    return { greeting: `hello ${name}` };
  },
};

async function post(path, body) {
  for (let pause = 100; ; pause = Math.min(2 * pause, 5000)) {
    try {
      const answer = await fetch(api + path, { method: "POST", headers, body: JSON.stringify(body) });
      if (answer.status !== 429 && answer.status < 500) return [answer.status, await answer.json()];
    } catch (error) {
      console.error(`${error.message}, trying again`); // every call here may be repeated
    }
    await new Promise((resolve) => setTimeout(resolve, pause * (0.5 + Math.random())));
  }
}

async function work(job) {
  const path = `/jobs/${job.job_id}`;
  const lease = { lease_token: job.lease_token };
  const stop = new AbortController(); // aborted when the lease is lost, someone cancels or time is up
  const limit = setTimeout(() => stop.abort("TIMEOUT"), job.timeout_seconds * 1000);
  const beat = setInterval(async () => {
    const [, state] = await post(`${path}/heartbeat`, lease);
    if (!state.held || state.cancel_requested) stop.abort(state.timed_out ? "TIMEOUT" : "CANCELLED");
  }, (job.lease_seconds * 1000) / 3);
  const progress = (percent, message) => post(`${path}/progress`, { ...lease, percent, message });
  try {
    const handler = handlers[job.type];
    if (!handler) throw Object.assign(new Error(`no handler for ${job.type}`), { code: "UNKNOWN_TYPE" });
    const output = await handler(job.payload, { signal: stop.signal, progress, job });
    await post(`${path}/complete`, { ...lease, output });
  } catch (error) {
    const category = stop.signal.reason ?? (error.code ? "PERMANENT" : "TEMPORARY");
    const { message, stack, code = "" } = error;
    await post(`${path}/fail`, { ...lease, category, code, message, stack_trace: stack });
  } finally {
    clearInterval(beat);
    clearTimeout(limit);
  }
}

while (left > 0) {
  const [, claimed] = await post("/workers/claim", { worker_id, queues: ["default"], wait: 20 });
  for (const job of claimed.jobs ?? []) await work(job), left--;
}
