// Settings of queues and lanes in words, and what may be edited of them.
import type { Settings } from "../api/types"

export interface Editable {
  name: string
  label: string
  kind: "number" | "rate" | "choice" | "seconds"
  hint: string
  choices?: string[]
}

export const QUEUE_FIELDS: Editable[] = [
  { name: "concurrency", label: "Running at once", kind: "number", hint: "jobs; empty for no limit" },
  { name: "rate", label: "Rate", kind: "rate", hint: "such as 100/s or 5/m; empty for no limit" },
  { name: "lane_concurrency", label: "Running at once, each lane", kind: "number", hint: "jobs; empty for no limit" },
  { name: "lane_rate", label: "Rate, each lane", kind: "rate", hint: "such as 5/s; empty for no limit" },
  { name: "emit", label: "Events", kind: "choice", hint: "what is written to the event log", choices: ["none", "final", "all"] },
]

export const LANE_FIELDS: Editable[] = [
  { name: "weight", label: "Weight", kind: "number", hint: "its share against other lanes" },
  { name: "concurrency", label: "Running at once", kind: "number", hint: "empty for no limit" },
  { name: "rate", label: "Rate", kind: "rate", hint: "such as 5/s; empty for no limit" },
]

/** A setting as text. */
export function told(value: unknown): string {
  if (value === null || value === undefined) return "no limit"
  return typeof value === "object" ? JSON.stringify(value) : String(value)
}

/** What somebody typed as a setting; empty means no limit. */
export function typed(field: Editable, text: string): unknown {
  const said = text.trim()
  if (field.kind === "choice") return said
  if (!said || said === "no limit") return field.name === "weight" ? 1 : null
  return field.kind === "number" || field.kind === "seconds" ? Number(said) : said
}

/** The limits of a queue in a few words. */
export function limits(settings: Settings): string {
  const parts: string[] = []
  if (settings.concurrency != null) parts.push(`${String(settings.concurrency)} at once`)
  if (settings.rate != null) parts.push(String(settings.rate))
  if (settings.lane_concurrency != null) parts.push(`${String(settings.lane_concurrency)} a lane`)
  if (settings.lane_rate != null) parts.push(`${String(settings.lane_rate)} a lane`)
  if (settings.sequence) parts.push("in sequence")
  return parts.join(", ")
}
