// Graphile Worker over PostgreSQL: two processes, a local queue and batched completes.

import { spawn } from "node:child_process";
import { Logger, WorkerPreset, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { URL_OF_STORE, WORKERS, main, mark, ping } from "./protocol.mjs";

const logger = new Logger(() => () => {});
const preset = {
  extends: [WorkerPreset],
  worker: {
    connectionString: URL_OF_STORE,
    concurrentJobs: 20,
    maxPoolSize: 22,
    pollInterval: 1000,
    localQueue: { size: 1000 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger,
  },
};
const taskList = {
  noop: async () => mark(),
  ping: async ({ sent }) => ping(sent),
};
let pool;
let utils;

async function work() {
  if (process.env.BENCH_CHILD) {
    await run({ preset, taskList, noHandleSignals: true });
    return;
  }
  const env = { ...process.env, BENCH_CHILD: "1" };
  for (let index = 0; index < WORKERS; index++) {
    spawn(process.execPath, process.argv.slice(1), { env, stdio: "inherit" });
  }
}

async function connect() {
  pool = new pg.Pool({ connectionString: URL_OF_STORE, max: 10 });
  utils = await makeWorkerUtils({ pgPool: pool, logger });
}

main({
  prepare: async () => {
    await connect();
    await utils.migrate();
  },
  open: connect,
  enqueue: (text) => utils.addJob("noop", { text }),
  bulk: (texts) => utils.addJobs(texts.map((text) => ({ identifier: "noop", payload: { text } }))),
  // A lower number goes first.
  ping: (sent, priority) => utils.addJob("ping", { sent }, { priority: -priority }),
  close: () => utils.release(),
  work,
});
