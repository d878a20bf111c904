// A worker in Node, without packages: claims jobs of the queue "images" over HTTP and runs several at a time.
//
//   windlass serve tasks:app                                 # somewhere
//   WINDLASS_API=http://127.0.0.1:8700 node worker.mjs       # here, with WINDLASS_KEY, or the server's WINDLASS_TOKEN
//
// It has a session, which it keeps alive by beating: its leases have no deadline, however long a job takes. Should
// it die, its jobs go to others when it has been silent for the session's TTL. Node 18 or newer.
import { hostname } from "node:os";

const api = process.env.WINDLASS_API ?? "http://127.0.0.1:8700";
const queues = (process.env.QUEUE ?? "images").split(",");
const slots = Number(process.env.SLOTS ?? 4);

const tasks = {
  async resize({ path, sleep = 0 }, job) {
    await job.progress(0.5, `half of ${path}`);
    await new Promise((resolve) => setTimeout(resolve, sleep * 1000));
    return { resized: path, by: "node" };
  },
  async explode() {
    throw new RangeError("no such thing");
  },
};

async function ask(path, body, method = "POST") {
  const answer = await fetch(api + path, {
    method,
    headers: { authorization: `Bearer ${process.env.WINDLASS_KEY ?? process.env.WINDLASS_TOKEN ?? ""}`, "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(90_000),
  });
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(problem.detail ?? answer.statusText), { status: answer.status });
  }
  return answer.status === 204 ? null : answer.json();
}

// Try until it is answered: while the server is away nothing is lost, and a word said twice counts once.
async function insist(path, body) {
  for (;;) {
    try {
      return await ask(path, body);
    } catch (error) {
      if (error.status !== undefined && error.status < 500 && error.status !== 429) throw error;
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }
}

const running = new Map(); // lease -> AbortController
let session;
let seq = 0;
let stopping = false;

async function open() {
  session = await insist("/v1/leases/sessions", { queues, slots, host: hostname(), pid: process.pid, version: "node" });
  seq = 0;
}

async function beat() {
  while (!stopping) {
    await new Promise((resolve) => setTimeout(resolve, session.beat * 1000));
    const pulse = await insist(`/v1/leases/sessions/${session.session}/beat`, {}).catch(() => ({ alive: false, cancel: [] }));
    const lost = pulse.alive ? pulse.cancel : [...running.keys()];
    for (const lease of lost) running.get(lease)?.abort();
    if (!pulse.alive && !stopping) await open(); // others have our jobs: what we still say about them is refused
  }
}

async function run(lease) {
  const stop = new AbortController();
  running.set(lease.lease, stop);
  const job = {
    ...lease,
    signal: stop.signal,
    progress: (fraction, message = "") => ask(`/v1/leases/${lease.lease}/progress`, { fraction, message }).catch(() => {}),
  };
  const began = performance.now();
  let settlement;
  try {
    const task = tasks[lease.task];
    if (task === undefined) settlement = { outcome: "hold", reason: `this worker has no task ${lease.task}` };
    else settlement = { outcome: "ack", result: (await task(lease.payload.kwargs, job)) ?? null };
  } catch (error) {
    settlement = { outcome: "nack", error: { type: error.name, message: error.message, traceback: error.stack ?? "" } };
  }
  settlement.runtime = (performance.now() - began) / 1000;
  // 409: the job was given to others meanwhile, and this run counts for nothing.
  await insist(`/v1/leases/${lease.lease}/settle`, settlement).catch(() => {});
  running.delete(lease.lease);
}

async function work() {
  while (!stopping) {
    const free = slots - running.size;
    if (free === 0) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      continue;
    }
    const wait = running.size === 0 ? 20 : 1;
    const mine = session;
    const claimed = await insist("/v1/leases", { queues, limit: free, wait, session: mine.session, seq: seq + 1 }).catch(
      () => ({ session: "lost", leases: [] }),
    );
    if (mine !== session) continue;
    if (claimed.session !== "alive") await open();
    else seq += 1; // only after an answer: the same number again gives what a lost answer held
    for (const lease of claimed.leases) run(lease);
  }
}

async function stop() {
  if (stopping) process.exit(1);
  stopping = true;
  while (running.size > 0) await new Promise((resolve) => setTimeout(resolve, 20));
  await ask(`/v1/leases/sessions/${session.session}`, undefined, "DELETE").catch(() => {});
  process.exit(0);
}

process.on("SIGTERM", stop);
process.on("SIGINT", stop);
await open();
console.log(`working on ${queues} as ${session.id}`);
beat();
await work();
