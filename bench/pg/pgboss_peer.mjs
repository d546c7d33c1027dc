// pg-boss with what its documentation offers for throughput: batches, bursts, two pollers.
// Completed jobs are kept; there is no history of their states.
import { main, need, tick } from './peer.mjs';

const { PgBoss } = need('pg-boss');
const QUEUE = 'bench';

const open = async connectionString => {
  const boss = new PgBoss({ connectionString });
  boss.on('error', error => console.error(String(error)));
  await boss.start();
  return boss;
};

main({
  setup: async dsn => {
    const boss = await open(dsn);
    await boss.createQueue(QUEUE);
    await boss.stop({ graceful: false });
  },
  open,
  close: boss => boss.stop({ graceful: false }),
  submit: (boss, n) => boss.send(QUEUE, { n }),
  bulk: (boss, all) => boss.insert(QUEUE, all.map(n => ({ data: { n } }))),
  work: async dsn => {
    const boss = await open(dsn);
    const options = {
      batchSize: 1000, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true, localConcurrency: 2,
    };
    await boss.work(QUEUE, options, async jobs => { for (const _ of jobs) tick(); return jobs.length; });
    return () => boss.stop({ graceful: false });
  },
});
