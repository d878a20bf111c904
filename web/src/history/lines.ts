// The lines of a chart, from the buckets of history.
import type { Bucket, History } from "../api/types"
import type { Line } from "../ui/Chart.svelte"

export const times = (history: History) => history.buckets.map((bucket) => Date.parse(bucket.at) / 1000)

/** Seconds that history is behind the store. */
const BEHIND = 6
/** Whether all that ended in a bucket is in it. One that goes on would look like a collapse: its numbers are still small. */
const isWhole = (history: History, bucket: Bucket) => Date.parse(bucket.at) / 1000 + history.step + BEHIND <= Date.parse(history.until) / 1000

export function throughput(history: History): Line[] {
  const each = (pick: (bucket: Bucket) => number) => history.buckets.map((bucket) => (isWhole(history, bucket) ? pick(bucket) / history.step : null))
  return [
    { name: "Done", colour: "--accent", values: each((bucket) => bucket.done), fill: true },
    { name: "Failed", colour: "--bad", values: each((bucket) => bucket.failed) },
  ]
}

export function failures(history: History): Line[] {
  const values = history.buckets.map((bucket) => {
    const ended = bucket.done + bucket.failed + bucket.cancelled
    return ended ? bucket.failed / ended : null
  })
  return [{ name: "Failed", colour: "--bad", values, fill: true }]
}

export function percentiles(history: History, of: "wait" | "run"): Line[] {
  return [
    { name: "p50", colour: "--accent", values: history.buckets.map((bucket) => bucket[of].p50) },
    { name: "p95", colour: "--warn", values: history.buckets.map((bucket) => bucket[of].p95) },
    { name: "p99", colour: "--bad", values: history.buckets.map((bucket) => bucket[of].p99) },
  ]
}

export function use(history: History): Line[] {
  return [{ name: "In use", colour: "--blue", values: history.buckets.map((bucket) => (isWhole(history, bucket) ? bucket.use : null)), fill: true }]
}
