// Which jobs: read from the address, so that a link shows another the same; asked of the API; told in words.
import type { Query } from "../api/client"
import { STATES, type State } from "../api/types"

export interface Filter {
  states: State[]
  queue: string
  task: string
  /** Null: any. Empty: jobs without a lane. */
  lane: string | null
  tag: string
  text: string
  flow: string
  /** The id of a job: those that it spawned. */
  parent: string
  /** A length before now, such as "1h"; or empty. */
  last: string
  since: string
  until: string
}

export const LASTS: [string, string][] = [
  ["15m", "last 15 minutes"],
  ["1h", "last hour"],
  ["24h", "last day"],
  ["7d", "last 7 days"],
]

export function filterOf(query: URLSearchParams): Filter {
  const text = (name: string) => query.get(name) ?? ""
  return {
    states: query.getAll("state").filter((state): state is State => STATES.includes(state as State)),
    queue: text("queue"),
    task: text("task"),
    lane: query.get("lane"),
    tag: text("tag"),
    text: text("text"),
    flow: text("flow"),
    parent: text("parent"),
    last: LASTS.some(([value]) => value === text("last")) ? text("last") : "",
    since: isTime(text("since")) ? text("since") : "",
    until: isTime(text("until")) ? text("until") : "",
  }
}

const isTime = (text: string) => !Number.isNaN(Date.parse(text))

/** The same as parameters of the API. What is before now is counted by the store's clock. */
export function asked(filter: Filter): Query {
  const { states, lane, queue, task, tag, text, flow, parent } = filter
  return {
    state: states,
    ...(lane === null ? {} : { lane: [lane] }), // as a list, so that the empty one is sent
    ...{ queue, task, tag, text, flow, parent },
    since: filter.last || instant(filter.since),
    until: instant(filter.until),
  }
}
const instant = (time: string) => time && new Date(time).toISOString()

/** Whether the store has an index for all of it; else it has to look through its jobs. */
export const isIndexed = (filter: Filter) => !(filter.tag || filter.text || filter.parent || filter.last || filter.since || filter.until)

/** The filter in words, for questions. */
export function words(filter: Filter): string {
  const parts: string[] = []
  if (filter.states.length) parts.push(`state ${filter.states.join(" or ")}`)
  for (const name of ["queue", "task", "tag", "flow"] as const) if (filter[name]) parts.push(`${name} ${filter[name]}`)
  if (filter.lane !== null) parts.push(filter.lane ? `lane ${filter.lane}` : "without a lane")
  if (filter.parent) parts.push(`spawned by ${filter.parent}`)
  if (filter.text) parts.push(`text “${filter.text}”`)
  const last = LASTS.find(([value]) => value === filter.last)
  if (last) parts.push(last[1])
  if (filter.since) parts.push(`since ${filter.since}`)
  if (filter.until) parts.push(`until ${filter.until}`)
  return parts.join(", ") || "no filter: all jobs"
}

export function isEmpty(filter: Filter): boolean {
  return words(filter).startsWith("no filter")
}
