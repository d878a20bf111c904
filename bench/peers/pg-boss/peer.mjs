// pg-boss over PostgreSQL: two processes, a batch for each look. It polls, at most twice a second.

import { spawn } from "node:child_process";
import { PgBoss } from "pg-boss";
import { URL_OF_STORE, WORKERS, main, mark, ping } from "./protocol.mjs";

const options = { connectionString: URL_OF_STORE, schedule: false };
const often = { pollingIntervalSeconds: 0.5, batchSize: 1000 };
let boss;

async function started(more) {
  boss = new PgBoss({ ...options, ...more });
  boss.on("error", (error) => console.error(error));
  await boss.start();
}

async function work() {
  if (process.env.BENCH_CHILD) {
    await started();
    await boss.work("noop", often, async (jobs) => jobs.forEach(() => mark()));
    await boss.work("ping", often, async (jobs) => jobs.forEach(({ data }) => ping(data.sent)));
    return;
  }
  const env = { ...process.env, BENCH_CHILD: "1" };
  for (let index = 0; index < WORKERS; index++) {
    spawn(process.execPath, process.argv.slice(1), { env, stdio: "inherit" });
  }
}

main({
  prepare: async () => {
    await started();
    for (const queue of ["noop", "ping"]) await boss.createQueue(queue);
    await boss.stop({ graceful: false });
  },
  open: () => started({ supervise: false, migrate: false }),
  enqueue: (text) => boss.send("noop", { text }),
  bulk: (texts) => boss.insert("noop", texts.map((text) => ({ data: { text } }))),
  ping: (sent, priority) => boss.send("ping", { sent }, { priority }),
  close: () => boss.stop({ graceful: false }),
  work,
});
