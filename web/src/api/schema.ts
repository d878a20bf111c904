// Made from the API's description by `make web-types`; changes here are lost.
// What the screens call these things: types.ts.

export interface Accepted {
  id: string
  task: string
  queue: string
  lane: string
  created: boolean
}

export interface AcceptedMany {
  jobs: Accepted[]
}

export interface ActShown {
  at: string
  by: string
  what: string
  chosen: Record<string, string>
  jobs: number
  wanted: number
  reason: string
}

export interface Advice {
  job: string
  task: string
  queue: string
  lane: string
  state: string
  why: string
  text: string
  do: string
  ahead: number
  next_in: number | null
  next_at: string | null
  error: string | null
}

export interface AlertShown {
  name: string
  queue: string | null
  task: string | null
  intake: string | null
  relay: string | null
  depth: number | null
  oldest: number | null
  dead: number | null
  lag: number | null
  behind: number | null
  stopped: boolean
  clear: number
  raised: boolean
  since: string | null
  why: string
  app: string
}

export interface Arguments {
  args: unknown[]
  kwargs: Record<string, unknown>
}

export interface AttemptShown {
  fence: number
  attempt: number
  outcome: string
  move: string
  started_at: string | null
  ended_at: string
  wait: number | null
  run: number | null
  worker: string
  host: string
  error: string | null
  message: string | null
  fingerprint: string | null
}

export interface BeatAnswer {
  alive: boolean
  cancel: string[]
}

export interface BeatGiven {
  memory?: number
}

export interface Bucket {
  at: string
  done?: number
  failed?: number
  cancelled?: number
  per_second?: number
  wait?: Percentiles
  run?: Percentiles
  slots?: number | null
  use?: number | null
}

export interface CauseShown {
  kind: string
  detail: string
}

export interface Change {
  arguments?: Record<string, unknown> | null
  priority?: number | null
  max_attempts?: number | null
  tags?: string[] | null
}

export interface Claim {
  queues: string[]
  limit?: number
  wait?: number
  visibility?: number | string | null
  session?: string | null
  seq?: number | null
  alone?: boolean
}

export interface Claimed {
  session: string
  leases: LeaseShown[]
  more: boolean
  next_in: number | null
  suspects: number
}

export interface Counted {
  count: number
  more: boolean
}

export interface DeadChange {
  arguments?: Record<string, unknown> | null
  priority?: number | null
  max_attempts?: number | null
  tags?: string[] | null
  replay?: boolean
}

export interface DeadCount {
  count: number
  at: string
  cursor?: string | null
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

export interface DeadShown {
  id: string
  task: string
  queue: string
  lane: string
  state: string
  status: string
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
  held: HeldShown | null
  waiting_for: number
  replays: number
  progress: ProgressShown | null
  pruned: boolean
  error: ErrorShown | null
}

export interface DeliveryShown {
  attempt: number
  fence: number
  session: string | null
  claimed_at: string
  ended_at: string
  outcome: string
  settled: boolean
  runtime: number | null
  cause: CauseShown | null
  error: ErrorShown | null
}

export interface Done {
  id: string
  effect: string
  state: string | null
}

export interface EdgeShown {
  parent: string
  on_failure: string
}

export type Effect = "applied" | "conflict" | "flagged" | "not found" | "wrong state"

export interface Enqueue {
  type: string
  payload?: Record<string, unknown>
  run_at?: string | null
}

export interface Enqueued {
  task_id: string
}

export interface EnqueuedShown {
  at: string
  key: string | null
  by_key: string
  by_app: string
  by_host: string
}

export interface ErrorGiven {
  type?: string
  message?: string
  traceback?: string
}

export interface ErrorShown {
  type: string
  message: string
  traceback: string
  fingerprint: string
  cause: string
  retryable: boolean
}

export interface Extend {
  visibility?: number | string | null
}

export interface Extended {
  visibility: number | null
  cancel: boolean
}

export interface FieldProblem {
  field: string
  detail: string
}

export interface FireShown {
  tick: string
  at: string
  jobs: string[]
  missed: number
}

export interface FlowDone {
  flow: string
  jobs: number
}

export interface FlowEdge {
  parent: string
  child: string
  on_failure: string
}

export interface FlowGraph {
  flow: FlowShown
  jobs: JobShown[]
  edges: FlowEdge[]
  more: boolean
}

export interface FlowPage {
  items: FlowSeen[]
  cursor?: string | null
  examined: number
  more: boolean
}

export interface FlowSeen {
  id: string
  jobs: Record<string, number>
  newest: string
  unfinished?: boolean
  stuck?: boolean
}

export interface FlowShown {
  id: string
  state: string
  jobs: Record<string, number>
  total: number
  progress: number
}

export interface Forgotten {
  intake: string
  offsets: number
}

export interface GroupHistory {
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
  name: string
  host?: string | null
  pid?: number | null
  slots?: number | null
  use?: number | null
  error?: string | null
  message?: string | null
  last_task?: string | null
  last_job?: string | null
  last_at?: string | null
}

export interface Grouped {
  groups: DeadGroup[]
  examined: number
  more: boolean
}

export interface Health {
  status: string
}

export interface HeldShown {
  key: string
  reason: string
  since: string
  times: number
}

export interface History {
  since: string
  until: string
  step: number
  task: string | null
  queue: string | null
  total: Summary
  use: number | null
  tasks: TaskHistory[]
  buckets: Bucket[]
  workers: HostHistory[]
  by?: string | null
  groups?: GroupHistory[]
}

export interface HookShown {
  name: string
  queue: string
  url: string
  on: string[]
  by: string
  at: string | null
}

export interface HookWanted {
  queue: string
  url: string
  on?: ("dead" | "done")[]
}

export interface HostHistory {
  host: string
  seconds: number
  slots: number
  busy: number
  use: number | null
}

export interface Ids {
  ids: string[]
  reason?: string
}

export interface IntakeShown {
  name: string
  state: "failing" | "gone" | "paused" | "running" | "stopped" | "unread" | "waiting"
  url: string
  format: string
  tasks: string[]
  queues: string[] | null
  fields: Record<string, unknown>
  start: string
  window: number
  tombstones: string
  backlog: number
  app: string
  paused: boolean
  runners: number
  lag: number | null
  rate: number
  taken: number
  dead: number
  partitions: PartitionShown[]
  warnings: string[]
}

export interface JobHistory {
  job: string
  task: string
  queue: string
  lane: string
  tags: string[]
  enqueued: EnqueuedShown | null
  attempts: AttemptShown[]
}

export interface JobShown {
  id: string
  task: string
  queue: string
  lane: string
  state: string
  status: string
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
  held: HeldShown | null
  waiting_for: number
  replays: number
  progress: ProgressShown | null
  pruned: boolean
}

export interface JobWhole {
  id: string
  task: string
  queue: string
  lane: string
  state: string
  status: string
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
  held: HeldShown | null
  waiting_for: number
  replays: number
  progress: ProgressShown | null
  pruned: boolean
  error: ErrorShown | null
  payload_bytes: number
  result_bytes: number | null
  headers: Record<string, string>
  after: EdgeShown[]
  deliveries: DeliveryShown[]
  logs: string[]
  memos: string[]
  payload_stored?: boolean
  result_stored?: boolean
  payload?: unknown
  result?: unknown
}

export interface LaneChange {
  queue: string
  lane: string
  weight?: number
  concurrency?: number | null
  rate?: string | null
}

export interface LanePlace {
  queue: string
  lane: string
}

export interface LaneState {
  queue: string
  lane: string
  shown: LaneWhole | null
}

export interface LaneWhole {
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
  settings: Record<string, unknown>
  declared: Record<string, unknown>
  override: Record<string, unknown>
  parked_until?: string | null
}

export interface LeaseShown {
  lease: string
  job: string
  task: string
  payload: Arguments
  queue: string
  lane: string
  priority: number
  attempt: number
  max_attempts: number
  fence: number
  headers: Record<string, string>
  tags: string[]
  flow: string
  parents: string[]
  idempotency_key: string
  waited: number
  expires_in: number | null
  visibility: number | null
}

export interface Login {
  key: string
}

export type Move = "enqueue" | "unblock" | "parent failed" | "due" | "unhold" | "claim" | "done" | "retry" | "snooze" | "hold" | "release" | "dead" | "cancel" | "supersede" | "crash" | "lost" | "deadline" | "expire" | "replace" | "edit" | "replay" | "discard" | "purge" | "prune"

export interface MoveWanted {
  partition: string
  to: string
  identity?: string | null
  expect?: string | null
}

export interface Moved {
  intake: string
  partition: string
  moved: boolean
  before: string | null
  offset: string | null
  identity: string | null
}

export interface NewForgetting {
  tag: string
  reason?: string
}

export interface NewOperation {
  verb: "discard" | "replay"
  queue?: string | null
  task?: string | null
  lane?: string | null
  error?: string | null
  group?: string | null
  older_than?: number | string | null
  until?: string | null
  most?: number | null
  all?: boolean
  rate?: string | null
  reason?: string
}

export interface NewSchedule {
  cron?: string | null
  tz?: string | null
  every?: number | string | null
  at?: string | null
  start?: string | null
  end?: string | null
  jitter?: number | string | null
  catch_up?: "all" | "one" | "skip" | null
  grace?: number | string | null
  cap?: number | null
  overlap?: "allow" | "queue" | "skip" | null
  name: string
  task: string
  arguments?: Record<string, unknown>
  queue?: string | null
  lane?: string | null
  priority?: number | null
  tags?: string[] | null
}

export interface NewStrike {
  task: string
  where: Record<string, unknown>
  reason?: string
}

export interface OpenSession {
  queues?: string[]
  slots?: number
  host?: string
  pid?: number
  version?: string
  ttl?: number | string | null
}

export interface Operated {
  job: string
  effect: Effect
  state?: State | null
  by?: string | null
}

export interface OperationShown {
  id: string
  verb: "discard" | "forget" | "replay"
  state: "done" | "failed" | "lost" | "running" | "stopped" | "stopping"
  by: string
  chosen: Record<string, string>
  reason: string
  rate: string | null
  wanted: number
  applied: number
  passed: number
  progress: number
  started_at: string
  updated_at: string
  error: string
}

export interface Overview {
  now: string
  app: string
  namespace: string
  store: string
  durability: string
  version: string
  jobs: Record<string, number>
  queues: QueueShown[]
  workers: WorkersGlance
  schedules: SchedulesGlance
  alerts: AlertShown[]
  problems: Trouble[]
}

export interface PartitionShown {
  partition: string
  offset: string | null
  identity: string | null
  moved_at: string | null
  owner: string
  host: string
  pid: number
  is_read: boolean
  place: string
  lag: number | null
  taken: number
  dead: number
  rate: number
  error: string
  waits_for: string
  stopped: boolean
  as_of: string | null
}

export interface Percentiles {
  p50?: number | null
  p95?: number | null
  p99?: number | null
}

export interface PreviewWanted {
  cron?: string | null
  tz?: string | null
  every?: number | string | null
  at?: string | null
  start?: string | null
  end?: string | null
  jitter?: number | string | null
  catch_up?: "all" | "one" | "skip" | null
  grace?: number | string | null
  cap?: number | null
  overlap?: "allow" | "queue" | "skip" | null
  count?: number
}

export interface Problem {
  type: string
  title: string
  status: number
  detail: string
  errors?: FieldProblem[]
}

export interface Progress {
  fraction?: number | null
  message?: string
  logs?: string[]
  visibility?: number | string | null
}

export interface ProgressShown {
  fraction: number
  message: string
}

export interface QueueChange {
  concurrency?: number | null
  rate?: string | null
  lane_concurrency?: number | null
  lane_rate?: string | null
  order?: "band" | "lane"
  bands?: Record<string, number> | null
  age_step?: number | null
  sequence?: boolean
  emit?: "all" | "final" | "none"
  retention?: number
  retention_count?: number | null
  result_ttl?: number
  dead_retention?: number
}

export interface QueueScale {
  queue: string
  queued: number
  running: number
  oldest: number
  usable: number
  paused: boolean
}

export interface QueueShown {
  name: string
  jobs: Record<string, number>
  oldest: number | null
  paused: boolean
  settings: Record<string, unknown>
  declared: Record<string, unknown>
  override: Record<string, unknown>
  app: string
  revision: number
  version: number
}

export interface Ran {
  job: string
}

export interface ReceiverSecret {
  receiver: string
  secret: string
}

export interface RelayShown {
  name: string
  state: "failing" | "gone" | "paused" | "running" | "unread"
  url: string
  queues: string[]
  tasks: string[]
  on: string[]
  to: string
  payload: boolean
  app: string
  paused: boolean
  sent: number
  refused: number
  refused_job: string
  gaps: number
  behind: number | null
  host: string
  pid: number
  is_read: boolean
  error: string
  warnings: string[]
  as_of: string | null
}

export interface Rotated {
  both_until: string
}

export interface Running {
  job: string
  task: string
  queue: string
  lane: string
  attempt: number
  since: string | null
  progress: ProgressShown | null
  cancel_requested: boolean
}

export interface Scale {
  queued: number
  running: number
  oldest: number
  workers: number
  slots: number
  wanted: number
  queues: QueueScale[]
}

export interface ScheduleShown {
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
  fires: FireShown[]
  problem?: string
}

export interface SchedulesGlance {
  total: number
  paused: number
  next_at: string | null
  next_name: string | null
}

export interface SecretWanted {
  url: string
}

export interface SessionOpened {
  session: string
  id: string
  ttl: number
  beat: number
}

export interface Settle {
  outcome: "ack" | "hold" | "nack" | "reject" | "release" | "snooze"
  result?: unknown
  delay?: number | string | null
  error?: ErrorGiven | null
  reason?: string
  runtime?: number | null
}

export interface SettleMany {
  items: SettleOne[]
}

export interface SettleOne {
  outcome: "ack" | "hold" | "nack" | "reject" | "release" | "snooze"
  result?: unknown
  delay?: number | string | null
  error?: ErrorGiven | null
  reason?: string
  runtime?: number | null
  lease: string
}

export interface Settled {
  verdict: string
  outcome: string | null
  state: string | null
}

export interface SettledMany {
  items: Settled[]
}

export type State = "blocked" | "cancelled" | "dead" | "done" | "ready" | "running" | "scheduled"

export interface StrikeShown {
  id: string
  task: string
  where: Record<string, unknown>
  reason: string
  by: string
  at: string
}

export interface Striking {
  strike: StrikeShown
  changed: boolean
  freed?: number
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

export interface TagCount {
  jobs: number
  waiting: number
  running: number
  cursor?: string | null
}

export interface TaskEntry {
  name: string
  queue: string
  app: string
  revision: number
  external: boolean
  doc: string
  run: string | null
  timeout: number | null
  max_attempts: number
  jobs: Record<string, number>
  paused: boolean
  strikes: number
  arguments: Record<string, unknown>
}

export interface TaskHistory {
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
  task: string
}

export interface Timing {
  cron?: string | null
  tz?: string | null
  every?: number | string | null
  at?: string | null
  start?: string | null
  end?: string | null
  jitter?: number | string | null
  catch_up?: "all" | "one" | "skip" | null
  grace?: number | string | null
  cap?: number | null
  overlap?: "allow" | "queue" | "skip" | null
}

export interface Trouble {
  kind: string
  level: "note" | "problem" | "warning"
  queue: string | null
  text: string
  do?: string
}

export interface Wanted {
  task: string
  payload?: Record<string, unknown>
  queue?: string
  lane?: string
  priority?: number
  delay?: number | string
  run_at?: string
  expires?: number | string
  key?: string
  mode?: "ignore" | "replace" | "throttle"
  window?: number | string
  after?: string[]
  on_failure?: "cancel" | "ignore" | "run"
  max_attempts?: number
  headers?: Record<string, string>
  tags?: string[]
  flow?: string
  callback?: string
}

export interface WantedMany {
  jobs: Wanted[]
}

export interface Who {
  name: string
  label: string
  scopes: string[]
  queues: string[] | null
  lanes: string[] | null
  namespace: string
  app: string
  logged_in: boolean
}

export interface Why {
  reason?: string
}

export interface WorkerWhole {
  id: string
  state: string
  host: string
  pid: number
  app: string
  version: string
  queues: string[]
  intakes: string[]
  slots: number
  leases: number
  memory: number
  opened_at: string
  silent_for: number
  ttl: number
  cause: CauseShown | null
  running: Running[]
}

export interface WorkersGlance {
  alive: number
  slots: number
  busy: number
  crashed: number
}
