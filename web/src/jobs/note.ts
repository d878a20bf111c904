// The one thing worth saying of a job in a row.
import type { Job } from "../api/types"
import { percent } from "../format/number"

export function noteOf(job: Job): string {
  const parts: string[] = []
  if (job.cancel_requested && job.state === "running") parts.push("asked to stop")
  if (job.held) parts.push(`held: ${job.held.reason}`)
  else if (job.progress && job.state === "running") parts.push(`${percent(job.progress.fraction)} ${job.progress.message}`.trim())
  else if (job.state === "blocked" && job.waiting_for) parts.push(`waits for ${job.waiting_for}`)
  else if (job.state === "scheduled" && job.attempt > 0) parts.push("retries")
  if (job.reason) parts.push(job.reason)
  if (job.crashes > 1) parts.push("suspect")
  if (job.tags.length) parts.push(job.tags.map((tag) => `#${tag}`).join(" "))
  return parts.join(" · ")
}
