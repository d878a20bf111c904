// What the API tells, by the names that the screens use. Made of the generated types, so that a change of the API
// that a screen has not heard of does not build.
import type * as api from "./schema"

export type State = "blocked" | "scheduled" | "ready" | "running" | "done" | "dead" | "cancelled"
export const STATES: State[] = ["ready", "running", "scheduled", "blocked", "dead", "done", "cancelled"]
export const UNFINISHED: State[] = ["ready", "running", "scheduled", "blocked"]

/** Answers carry every field, also those with a default. */
type Told<T> = T extends (infer Item)[] ? Told<Item>[] : T extends object ? { [Name in keyof T]-?: Told<Exclude<T[Name], undefined>> } : T
type InState<T> = Omit<Told<T>, "state"> & { state: State }
type Counted<T> = Omit<Told<T>, "jobs"> & { jobs: Record<State, number> }

export interface Page<T> {
  items: T[]
  cursor: string | null
}

export type Settings = Record<string, unknown>
export type Who = Told<api.Who>

export type Job = InState<api.JobShown>
export type JobError = Told<api.ErrorShown>
export type DeadJob = InState<api.DeadShown>
export type Delivery = Told<api.DeliveryShown>
export type JobWhole = Omit<InState<api.JobWhole>, "payload"> & {
  payload: { args: unknown[]; kwargs: Record<string, unknown> } | string | null
}
export type Advice = InState<api.Advice>
export type JobCount = Told<api.Counted>
export type Operated = Told<api.Operated>
export type Operation = Told<api.OperationShown>
export type Act = Told<api.ActShown>

export type Queue = Counted<api.QueueShown>
export type Lane = Told<api.LaneWhole>
export type Trouble = Told<api.Trouble>
export type Overview = Omit<Counted<api.Overview>, "queues"> & { queues: Queue[] }

export type Worker = Told<api.WorkerWhole>
export type DeadCount = Told<api.DeadCount>
export type DeadGroup = Told<api.DeadGroup>
export type Grouped = Told<api.Grouped>
export type Schedule = Told<api.ScheduleShown>
export type FlowSeen = Told<api.FlowSeen>
export type FlowPage = Told<api.FlowPage>
export type FlowEdge = Told<api.FlowEdge>
export type FlowGraph = Omit<Told<api.FlowGraph>, "jobs"> & { jobs: Job[] }
export type Intake = Told<api.IntakeShown>
export type Partition = Told<api.PartitionShown>
export type Relay = Told<api.RelayShown>
export type Task = Counted<api.TaskEntry>
export type History = Told<api.History>
export type Bucket = Told<api.Bucket>
