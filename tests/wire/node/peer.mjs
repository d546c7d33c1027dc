// A BullMQ client driven over stdin: one JSON command per line, one JSON answer per line.
// argv: package ("bullmq" or "bullmq5"), port; the verb `use` sets the prefix
import { createInterface } from "node:readline";
import Redis from "ioredis";

const [, , pkg, port] = process.argv;
const { Queue, Worker, QueueEvents, FlowProducer, UnrecoverableError, DelayedError, WaitingError, WaitingChildrenError } = await import(pkg);
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null };
const options = { connection };
const redis = new Redis(connection);
const queues = new Map();
const workers = new Map();
const listeners = new Map();
const fetched = new Map();
const seen = [];
const waiting = [];

// What BullMQ asks of a telemetry: spans are ids, a context is the carrier that BullMQ sends on.
const spans = [];
const telemetry = {
  contextManager: {
    current: {},
    with(context, callback) {
      const before = this.current;
      this.current = context;
      try { return callback(); } finally { this.current = before; }
    },
    active() { return this.current; },
    getMetadata(context) { return JSON.stringify(context); },
    fromMetadata(active, metadata) { return { ...active, ...JSON.parse(metadata) }; },
  },
  tracer: {
    startSpan(name, given, context) {
      spans.push({ name, parent: context?.traceparent ?? null });
      return {
        setSpanOnContext: (context) => context, setAttribute() {}, setAttributes() {}, addEvent() {},
        recordException() {}, end() {},
      };
    },
  },
};

function queue(name) {
  if (!queues.has(name)) queues.set(name, new Queue(name, options));
  return queues.get(name);
}

function traced(name) {
  const key = `traced ${name}`;
  if (!queues.has(key)) queues.set(key, new Queue(name, { ...options, telemetry }));
  return queues.get(key);
}

function note(entry) {
  seen.push(entry);
  for (const check of [...waiting]) check();
}

async function handle(job, token) {
  const data = job.data ?? {};
  // Before the first await: the context of a telemetry ends there.
  if (data.next) await traced(data.next.queue).add(data.next.job, data.next.data ?? {});
  note({ on: "started", id: job.id, name: job.name, data: job.data, attempts: job.attemptsMade });
  if (data.sleep) await new Promise((done) => setTimeout(done, data.sleep));
  if (data.hang) await new Promise(() => {});
  if (data.progress !== undefined) await job.updateProgress(data.progress);
  if (data.log) await job.log(data.log);
  if (data.fatal) throw new UnrecoverableError(data.fatal);
  if (data.fail && job.attemptsMade < (data.times ?? 1000)) throw new Error(data.fail);
  if (data.later && job.attemptsStarted === 1) {
    await job.moveToDelayed(Date.now() + data.later, token);
    throw new DelayedError();
  }
  if (data.again && job.attemptsStarted === 1) {
    await job.moveToWait(token);
    throw new WaitingError();
  }
  if (data.steps && job.attemptsStarted === 1) {
    const parent = { id: job.id, queue: job.queueQualifiedName };
    for (const name of data.steps) await queue("kid").add(name, {}, { parent });
  }
  if (data.steps && await job.moveToWaitingChildren(token)) throw new WaitingChildrenError();
  if (data.limited && job.attemptsStarted === 1) {
    await queue(job.queueName).rateLimit(data.limited);
    throw Worker.RateLimitError();
  }
  return data.children || data.steps ? await job.getChildrenValues() : (data.result ?? { ran: job.name });
}

const verbs = {
  use: async ({ prefix }) => {
    await Promise.all([workers, listeners, queues].flatMap((held) =>
      [...held.values()].map((each) => each.close(true).catch(() => {}))));
    for (const held of [workers, listeners, queues]) held.clear();
    seen.length = 0;
    options.prefix = prefix;
    return true;
  },
  add: async ({ queue: name, job, data, opts }) => (await queue(name).add(job, data, opts)).id,
  addBulk: async ({ queue: name, jobs }) => (await queue(name).addBulk(jobs)).map((job) => job.id),
  flow: async ({ tree }) => {
    const producer = new FlowProducer(options);
    const node = await producer.add(tree);
    await producer.close();
    const shown = (each) => ({ id: each.job.id, children: (each.children ?? []).map(shown) });
    return shown(node);
  },
  tree: async ({ queue: name, id }) => {
    const producer = new FlowProducer(options);
    const node = await producer.getFlow({ id, queueName: name, prefix: options.prefix });
    const shown = async (each) => ({
      id: each.job.id, name: each.job.name, state: await each.job.getState(),
      children: await Promise.all((each.children ?? []).map(shown)),
    });
    const found = node ? await shown(node) : null;
    await producer.close();
    return found;
  },
  work: async ({ queue: name, opts }) => {
    // A function cannot be sent: strategy is what the worker's backoff strategy returns.
    const { strategy, ...rest } = opts ?? {};
    const settings = strategy === undefined ? {} : { settings: { backoffStrategy: () => strategy } };
    const worker = new Worker(name, handle, { ...options, ...rest, ...settings });
    worker.on("error", (error) => note({ on: "error", message: error.message }));
    worker.on("completed", (job) => note({ on: "completed", id: job.id }));
    worker.on("failed", (job, error) => note({ on: "failed", id: job?.id, message: error.message }));
    worker.on("stalled", (id) => note({ on: "stalled", id }));
    workers.set(name, worker);
    await worker.waitUntilReady();
    return true;
  },
  // A worker without a processor: jobs are fetched and settled by hand.
  addTraced: async ({ queue: name, job, data, context }) => {
    const traced = new Queue(name, { ...options, telemetry });
    const added = await telemetry.contextManager.with(context, () => traced.add(job, data));
    await traced.close();
    return added.id;
  },
  workTraced: async ({ queue: name }) => {
    const worker = new Worker(name, handle, { ...options, telemetry });
    worker.on("completed", (job) => note({ on: "completed", id: job.id }));
    workers.set(name, worker);
    await worker.waitUntilReady();
    return true;
  },
  spans: async () => spans,
  fetch: async ({ queue: name, token }) => {
    if (!workers.has(name)) workers.set(name, new Worker(name, null, options));
    const job = await workers.get(name).getNextJob(token);
    if (job) fetched.set(job.id, job);
    return job?.id ?? null;
  },
  settle: async ({ id, token, value, error }) => {
    const job = fetched.get(id);
    if (error) await job.moveToFailed(new Error(error), token, false);
    else await job.moveToCompleted(value, token, false);
    return true;
  },
  finished: async ({ queue: name, id }) => {
    const events = new QueueEvents(name, options);
    listeners.set(name, events);
    await events.waitUntilReady();
    const job = await queue(name).getJob(id);
    return await job.waitUntilFinished(events, 15000);
  },
  rest: async ({ queue: name }) => {
    await workers.get(name)?.close();
    workers.delete(name);
    return true;
  },
  listen: async ({ queue: name }) => {
    const events = new QueueEvents(name, options);
    for (const event of ["added", "waiting", "active", "completed", "failed", "delayed", "progress",
      "stalled", "removed", "paused", "resumed", "drained", "retries-exhausted", "waiting-children"])
      events.on(event, (args) => note({ on: `event:${event}`, ...(args ?? {}) }));
    events.on("error", (error) => note({ on: "error", message: error.message }));
    listeners.set(name, events);
    await events.waitUntilReady();
    // It reads events from a moment some time after it reports that it is ready.
    let received = false;
    events.on("probe", () => (received = true));
    while (!received) {
      await redis.xadd(`${options.prefix}:${name}:events`, "*", "event", "probe");
      await new Promise((done) => setTimeout(done, 20));
    }
    return true;
  },
  until: ({ match, count, ms }) =>
    new Promise((done) => {
      const fits = (entry) => Object.entries(match).every(([key, value]) => entry[key] === value);
      let timer;
      const check = () => {
        const found = seen.filter(fits);
        if (found.length < (count ?? 1)) return false;
        clearTimeout(timer);
        waiting.splice(waiting.indexOf(check), 1);
        done(found);
        return true;
      };
      waiting.push(check);
      timer = setTimeout(() => {
        waiting.splice(waiting.indexOf(check), 1);
        done(null);
      }, ms ?? 15000);
      check();
    }),
  seen: async () => seen,
  state: async ({ queue: name, id }) => await queue(name).getJobState(id),
  job: async ({ queue: name, id }) => {
    const job = await queue(name).getJob(id);
    return job ? { ...job.toJSON(), state: await job.getState() } : null;
  },
  call: async ({ queue: name, method, args }) => (await queue(name)[method](...(args ?? []))) ?? null,
  onJob: async ({ queue: name, id, method, args }) => {
    const job = await queue(name).getJob(id);
    return (await job[method](...(args ?? []))) ?? null;
  },
  logs: async ({ queue: name, id }) => await queue(name).getJobLogs(id),
  schedule: async ({ queue: name, id, repeat, template }) =>
    (await queue(name).upsertJobScheduler(id, repeat, template)).id,
  board: async ({ queues: names }) => {
    const { createBullBoard } = await import("@bull-board/api");
    const { BullMQAdapter } = await import("@bull-board/api/bullMQAdapter");
    const found = {};
    for (const name of names) {
      const adapter = new BullMQAdapter(queue(name));
      createBullBoard({ queues: [adapter], serverAdapter: silent() });
      const jobs = await adapter.getJobs(["waiting", "active", "completed", "failed", "delayed",
        "prioritized", "waiting-children"], 0, 100);
      found[name] = {
        counts: await adapter.getJobCounts(),
        jobs: jobs.map((job) => ({ ...job.toJSON(), name: job.name })),
      };
    }
    return found;
  },
};

function silent() {
  const self = new Proxy({}, { get: () => () => self });
  return self;
}

async function stop() {
  for (const each of [...workers.values(), ...listeners.values(), ...queues.values()])
    await each.close(true).catch(() => {});
  process.exit(0);
}

console.log(JSON.stringify({ ready: true }));
const lines = createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const { n, verb, ...args } = JSON.parse(line);
  try {
    console.log(JSON.stringify({ n, answer: (await verbs[verb](args)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ n, error: String(error?.message ?? error) }));
  }
});
lines.on("close", stop);
