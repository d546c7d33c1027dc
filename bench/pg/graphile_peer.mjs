// graphile-worker with what its performance page recommends: a local queue that fetches 500 jobs
// at a time, and completions written in batches. Finished jobs are deleted; it keeps no history.
import { main, need, tick } from './peer.mjs';

const { run, makeWorkerUtils, Logger } = need('graphile-worker');
const logger = new Logger(() => () => {});

main({
  setup: async connectionString => {
    const utils = await makeWorkerUtils({ connectionString, logger });
    await utils.migrate();
    await utils.release();
  },
  open: connectionString => makeWorkerUtils({ connectionString, logger }),
  close: utils => utils.release(),
  submit: (utils, n) => utils.addJob('noop', { n }),
  bulk: (utils, all) => utils.addJobs(all.map(n => ({ identifier: 'noop', payload: { n } }))),
  work: async connectionString => {
    const worker = {
      connectionString, concurrentJobs: 100, maxPoolSize: 40,
      localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0,
    };
    const taskList = { noop: async () => { tick(); } };
    const runner = await run({ logger, noHandleSignals: true, crontab: '', preset: { worker }, taskList });
    return () => runner.stop();
  },
});
