// Which jobs: read from the address, so that a link shows another the same; asked of the API; told in words.
import type { Query } from "../api/client"
import { STATES, type Job, type State } from "../api/types"

export interface Filter {
  states: State[]
  queue: string
  task: string
  /** Null: any. Empty: jobs without a lane. */
  lane: string | null
  tag: string
  text: string
  flow: string
  /** A length before now, such as "1h"; or empty. */
  last: string
  since: string
  until: string
}

export const LASTS: [string, string, number][] = [
  ["15m", "last 15 minutes", 900],
  ["1h", "last hour", 3_600],
  ["24h", "last day", 86_400],
  ["7d", "last 7 days", 604_800],
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
    last: LASTS.some(([value]) => value === text("last")) ? text("last") : "",
    since: isTime(text("since")) ? text("since") : "",
    until: isTime(text("until")) ? text("until") : "",
  }
}

const isTime = (text: string) => !Number.isNaN(Date.parse(text))

/** The times of the filter, as the store writes them; empty: none. */
export function bounds(filter: Filter, now = Date.now()): { since: string; until: string } {
  const last = LASTS.find(([value]) => value === filter.last)
  return {
    since: last ? new Date(now - last[2] * 1000).toISOString() : filter.since && new Date(filter.since).toISOString(),
    until: filter.until && new Date(filter.until).toISOString(),
  }
}

/** What of the filter the API has parameters for: that which every store keeps an index of. */
export function asked(filter: Filter): Query {
  return {
    state: filter.states,
    queue: filter.queue,
    task: filter.task,
    ...(filter.lane === null ? {} : { lane: [filter.lane] }), // as a list, so that the empty one is sent
    flow: filter.flow,
  }
}

/** Whether pages have to be looked through for the rest of it. */
export const isLoose = (filter: Filter) => Boolean(filter.tag || filter.text || filter.last || filter.since || filter.until)

/** What the API does not choose by. */
export function chosenBy(filter: Filter): (job: Job) => boolean {
  const { since, until } = bounds(filter)
  const text = filter.text.toLowerCase()
  return (job) =>
    (!filter.states.length || filter.states.includes(job.state)) &&
    (!filter.tag || job.tags.includes(filter.tag)) &&
    (!since || job.accepted_at >= since) &&
    (!until || job.accepted_at <= until) &&
    (!text || [job.id, job.task, job.queue, job.lane, job.key, job.reason, job.flow, job.held?.reason, ...job.tags].some((each) => each?.toLowerCase().includes(text)))
}

/** The filter in words, for questions. */
export function words(filter: Filter): string {
  const parts: string[] = []
  if (filter.states.length) parts.push(`state ${filter.states.join(" or ")}`)
  for (const name of ["queue", "task", "tag", "flow"] as const) if (filter[name]) parts.push(`${name} ${filter[name]}`)
  if (filter.lane !== null) parts.push(filter.lane ? `lane ${filter.lane}` : "without a lane")
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
