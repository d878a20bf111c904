// A worker in TypeScript, without packages: claims jobs of the queue "images" over HTTP and runs several at a time.
//
//   windlass serve tasks:app                                # somewhere
//   WINDLASS_API=http://127.0.0.1:8700 node worker.ts       # here, with WINDLASS_KEY, or the server's WINDLASS_TOKEN
//
// Node 22.18 or newer runs it as it stands. It has a session, which it keeps alive by beating: its leases have no
// deadline, however long a job takes. Should it die, its jobs go to others when it has been silent for the
// session's TTL. SIGTERM lets running jobs end for GRACE seconds; a second one ends it at once.
import { hostname } from "node:os"

const api = process.env.WINDLASS_API ?? "http://127.0.0.1:8700"
const key = process.env.WINDLASS_KEY ?? process.env.WINDLASS_TOKEN ?? ""
const queues = (process.env.QUEUE ?? "images").split(",")
const slots = Number(process.env.SLOTS ?? 4)
const grace = Number(process.env.GRACE ?? 30)

type Json = null | boolean | number | string | Json[] | { [name: string]: Json }
interface Lease {
  lease: string
  job: string
  task: string
  attempt: number
  payload: { args: Json[]; kwargs: Record<string, Json> }
}
interface Job extends Lease {
  /** Aborted when the job is cancelled, when others have it, or when the grace is over. */
  signal: AbortSignal
  progress(fraction: number, message?: string): Promise<void>
}
interface Session {
  session: string
  beat: number
}

// --- the work itself ------------------------------------------------------------------------------------------------

const tasks: Record<string, (arguments_: Record<string, Json>, job: Job) => Promise<Json>> = {
  async resize({ path, sleep = 0 }, job) {
    await job.progress(0.5, `half of ${String(path)}`)
    await pause(Number(sleep), job.signal)
    return { resized: path ?? null, by: "node" }
  },
  async explode() {
    throw new RangeError("no such thing")
  },
}

/** Wait so many seconds. Throws when the signal says so: a task that heeds it ends early. */
function pause(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000)
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true })
  })
}

// --- asking the server ----------------------------------------------------------------------------------------------

class Refused extends Error {
  readonly status: number
  constructor(status: number, detail: string) {
    super(detail)
    this.status = status
  }
}

async function ask<T>(path: string, body?: Json, { method = "POST", signal }: { method?: string; signal?: AbortSignal } = {}): Promise<T> {
  const late = AbortSignal.timeout(90_000)
  const answer = await fetch(api + path, {
    method,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: body === undefined ? null : JSON.stringify(body),
    signal: signal ? AbortSignal.any([signal, late]) : late,
  })
  if (!answer.ok) {
    const problem = (await answer.json().catch(() => ({}))) as { detail?: string }
    throw new Refused(answer.status, problem.detail ?? answer.statusText)
  }
  return (answer.status === 204 ? null : await answer.json()) as T
}

/** Try until it is answered: while the server is away nothing is lost, and a word said twice counts once. */
async function insist<T>(path: string, body: Json, signal?: AbortSignal): Promise<T> {
  for (;;) {
    try {
      return await ask<T>(path, body, signal ? { signal } : {})
    } catch (error) {
      if (signal?.aborted) throw error
      if (error instanceof Refused && error.status < 500 && error.status !== 429) throw error
      await pause(0.5)
    }
  }
}

// --- the session ----------------------------------------------------------------------------------------------------

const running = new Map<string, AbortController>()
const stopping = new AbortController()
let session: Session
let seq = 0

async function open(): Promise<void> {
  session = await insist("/v1/leases/sessions", { queues, slots, host: hostname(), pid: process.pid, version: "node" }, stopping.signal)
  seq = 0
}

/** Beat until the process ends: also while it stops, since jobs still run. */
async function beat(): Promise<void> {
  for (;;) {
    await pause(session.beat)
    const pulse = await insist<{ alive: boolean; cancel: string[] }>(`/v1/leases/sessions/${session.session}/beat`, {}).catch(() => ({ alive: false, cancel: [] }))
    for (const lease of pulse.alive ? pulse.cancel : running.keys()) running.get(lease)?.abort(new Error("cancelled"))
    if (!pulse.alive && !stopping.signal.aborted) await open() // others have our jobs: what we still say about them is refused
  }
}

// --- a job ----------------------------------------------------------------------------------------------------------

async function run(lease: Lease): Promise<void> {
  const stop = new AbortController()
  running.set(lease.lease, stop)
  const job: Job = {
    ...lease,
    signal: stop.signal,
    progress: (fraction, message = "") => ask<void>(`/v1/leases/${lease.lease}/progress`, { fraction, message }).catch(() => undefined),
  }
  const began = performance.now()
  const settlement = await outcome(job)
  settlement.runtime = (performance.now() - began) / 1000
  // 409: the job was given to others meanwhile, and this run counts for nothing.
  await insist(`/v1/leases/${lease.lease}/settle`, settlement).catch(() => undefined)
  running.delete(lease.lease)
}

async function outcome(job: Job): Promise<{ [name: string]: Json }> {
  const task = tasks[job.task]
  if (task === undefined) return { outcome: "hold", reason: `this worker has no task ${job.task}` }
  try {
    return { outcome: "ack", result: (await task(job.payload.kwargs, job)) ?? null }
  } catch (error) {
    if (stopping.signal.aborted && job.signal.aborted) return { outcome: "release" } // it did not end within the grace
    const { name, message, stack } = error instanceof Error ? error : new Error(String(error))
    return { outcome: "nack", error: { type: name, message, traceback: stack ?? "" } }
  }
}

async function work(): Promise<void> {
  while (!stopping.signal.aborted) {
    const free = slots - running.size
    if (free === 0) {
      await pause(0.02)
      continue
    }
    const mine = session
    const claim = { queues, limit: free, wait: running.size === 0 ? 20 : 1, session: mine.session, seq: seq + 1 }
    const claimed = await insist<{ session: string; leases: Lease[] }>("/v1/leases", claim, stopping.signal).catch(() => ({ session: "lost", leases: [] }))
    if (stopping.signal.aborted) return // what the answer held goes back when the session ends
    if (mine !== session) continue
    if (claimed.session !== "alive") await open()
    else seq += 1 // only after an answer: the same number again gives what a lost answer held
    for (const lease of claimed.leases) void run(lease)
  }
}

async function stop(): Promise<never> {
  if (stopping.signal.aborted) process.exit(1)
  stopping.abort()
  console.log(`stopping: ${running.size} jobs running, up to ${grace} s`)
  const end = performance.now() + grace * 1000
  while (running.size > 0 && performance.now() < end) await pause(0.02)
  for (const job of running.values()) job.abort(new Error("the worker stops"))
  while (running.size > 0 && performance.now() < end + 2000) await pause(0.02)
  // Jobs whose code did not heed the signal go back with the session.
  if (session) await ask(`/v1/leases/sessions/${session.session}`, undefined, { method: "DELETE" }).catch(() => undefined)
  process.exit(0)
}

process.on("SIGTERM", stop)
process.on("SIGINT", stop)
await open()
console.log(`working on ${queues.join(", ")} in session ${session!.session}`)
void beat()
await work()
