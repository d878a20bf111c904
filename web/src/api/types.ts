// What the API tells, by the names that the screens use.

export type State = "blocked" | "scheduled" | "ready" | "running" | "done" | "dead" | "cancelled"
export const STATES: State[] = ["ready", "running", "scheduled", "blocked", "dead", "done", "cancelled"]
export const UNFINISHED: State[] = ["ready", "running", "scheduled", "blocked"]

export interface Who {
  name: string
  label: string
  scopes: string[]
  queues: string[] | null
  lanes: string[] | null
  namespace: string
  app: string
}

export interface Page<T> {
  items: T[]
  cursor: string | null
}

export interface Job {
  id: string
  task: string
  queue: string
  lane: string
  state: State
  reason: string | null
  priority: number
  attempt: number
  max_attempts: number
  crashes: number
  accepted_at: string
  due_at: string
  expires_at: string | null
  finished_at: string | null
  key: string | null
  tags: string[]
  flow: string
  parent: string | null
  revision: number
  fence: number
  session: string | null
  cancel_requested: boolean
  held: { key: string; reason: string; since: string; times: number } | null
  waiting_for: number
  replays: number
  progress: { fraction: number; message: string } | null
  pruned: boolean
}

export interface JobError {
  type: string
  message: string
  traceback: string
  fingerprint: string
  cause: string
  retryable: boolean
}

export interface DeadJob extends Job {
  error: JobError | null
}

export interface Cause {
  kind: string
  detail: string
}

export interface Delivery {
  attempt: number
  fence: number
  session: string | null
  claimed_at: string
  ended_at: string
  outcome: string
  settled: boolean
  runtime: number | null
  cause: Cause | null
  error: JobError | null
}

export interface JobWhole extends DeadJob {
  payload_bytes: number
  result_bytes: number | null
  headers: Record<string, string>
  after: { parent: string; on_failure: string }[]
  deliveries: Delivery[]
  logs: string[]
  memos: string[]
  payload: { args: unknown[]; kwargs: Record<string, unknown> } | string | null
  result: unknown
}

export interface Advice {
  job: string
  state: State
  why: string
  text: string
  do: string
  ahead: number
  next_in: number | null
  next_at: string | null
  error: string | null
}

export type Settings = Record<string, unknown>

export interface Queue {
  name: string
  jobs: Record<State, number>
  oldest: number | null
  paused: boolean
  settings: Settings
  declared: Settings
  override: Settings
  app: string
  revision: number
  version: number
}

export interface Lane {
  queue: string
  lane: string
  ready: number
  running: number
  weight: number
  share: number | null
  lag: number
  concurrency: number | null
  tokens: number | null
  parked: string | null
  paused: boolean
  settings: Settings
  declared: Settings
  override: Settings
}

export interface Trouble {
  kind: string
  level: "problem" | "warning" | "note"
  queue: string | null
  text: string
  do: string
}

export interface Overview {
  now: string
  app: string
  namespace: string
  store: string
  durability: string
  version: string
  jobs: Record<State, number>
  queues: Queue[]
  workers: { alive: number; slots: number; busy: number; crashed: number }
  schedules: { total: number; paused: number; next_at: string | null; next_name: string | null }
  alerts: { name: string; raised: boolean; why: string; queue: string | null; since: string | null }[]
  problems: Trouble[]
}

export interface Worker {
  id: string
  state: string
  host: string
  pid: number
  app: string
  version: string
  queues: string[]
  slots: number
  leases: number
  memory: number
  opened_at: string
  silent_for: number
  ttl: number
  cause: Cause | null
  running: Running[]
}

export interface Running {
  job: string
  task: string
  queue: string
  lane: string
  attempt: number
  since: string | null
  progress: { fraction: number; message: string } | null
  cancel_requested: boolean
}

export interface DeadGroup {
  task: string
  fingerprint: string
  error: string
  reason: string
  count: number
  first: string | null
  last: string | null
  newest: string
}

export interface Grouped {
  groups: DeadGroup[]
  examined: number
  more: boolean
}

export interface Operated {
  job: string
  effect: "applied" | "flagged" | "wrong state" | "not found" | "conflict"
  state: State | null
  by: string | null
}

export interface Operation {
  id: string
  verb: "replay" | "discard"
  state: "running" | "stopping" | "done" | "stopped" | "failed" | "lost"
  by: string
  chosen: Record<string, string>
  rate: string | null
  wanted: number
  applied: number
  passed: number
  progress: number
  started_at: string
  updated_at: string
  error: string
}

export interface Schedule {
  name: string
  rule: string
  words: string
  task: string
  queue: string
  lane: string
  next_at: string | null
  paused: boolean
  start: string | null
  end: string | null
  jitter: number
  catch_up: string
  overlap: string
  declared: boolean
  overridden: boolean
  app: string
  revision: number
  version: number
  fires: { tick: string; at: string; jobs: string[] }[]
  problem: string
}

export interface FlowSeen {
  id: string
  jobs: Record<string, number>
  newest: string
}

export interface Flow {
  id: string
  state: string
  jobs: Record<string, number>
  total: number
  progress: number
}

export interface FlowEdge {
  parent: string
  child: string
  on_failure: string
}

export interface FlowGraph {
  flow: Flow
  jobs: Job[]
  edges: FlowEdge[]
  more: boolean
}

export interface Task {
  name: string
  queue: string
  app: string
  revision: number
  external: boolean
  doc: string
  run: string | null
  timeout: number | null
  max_attempts: number
  jobs: Record<State, number>
  paused: boolean
  strikes: number
  arguments: Record<string, unknown>
}

export interface Percentiles {
  p50: number | null
  p95: number | null
  p99: number | null
}

export interface Summary {
  attempts: number
  done: number
  failed: number
  dead: number
  cancelled: number
  given_back: number
  failure_rate: number | null
  per_second: number
  busy_seconds: number
  wait: Percentiles
  run: Percentiles
}

export interface Bucket {
  at: string
  done: number
  failed: number
  cancelled: number
  per_second: number
  wait: Percentiles
  run: Percentiles
  slots: number | null
  use: number | null
}

export interface History {
  since: string
  until: string
  step: number
  task: string | null
  queue: string | null
  total: Summary
  use: number | null
  tasks: (Summary & { task: string })[]
  buckets: Bucket[]
  workers: { host: string; seconds: number; slots: number; busy: number; use: number | null }[]
}
