// BullMQ over Redis: two processes of one worker each.

import { spawn } from "node:child_process";
import { Queue, Worker } from "bullmq";
import { URL_OF_STORE, WORKERS, main, mark, ping } from "./protocol.mjs";

const { hostname, port } = new URL(URL_OF_STORE);
const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
const options = { removeOnComplete: true };
let queue;

async function handle(job) {
  if (job.name === "ping") ping(job.data.sent);
  else mark();
}

function work() {
  if (process.env.BENCH_CHILD) {
    new Worker("bench", handle, { connection, concurrency: 50, ...options });
    return;
  }
  const env = { ...process.env, BENCH_CHILD: "1" };
  for (let index = 0; index < WORKERS; index++) {
    spawn(process.execPath, process.argv.slice(1), { env, stdio: "inherit" });
  }
}

main({
  open() {
    queue = new Queue("bench", { connection, defaultJobOptions: options });
  },
  enqueue: (text) => queue.add("noop", { text }),
  bulk: (texts) => queue.addBulk(texts.map((text) => ({ name: "noop", data: { text } }))),
  // Its most urgent jobs are those without a priority: they go first.
  ping: (sent) => queue.add("ping", { sent }),
  close: () => queue.close(),
  work,
});
