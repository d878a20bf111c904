// The same done to many jobs: those selected, or all that match the filter. Counted first, confirmed, then done in
// batches with progress, and stopped when asked.
import { post, said } from "../api/client"
import type { Operated } from "../api/types"
import { count, many } from "../format/number"
import { perhapsReason, reasonFields } from "../dead/reason"
import { pulse } from "../live/pulse.svelte"
import { asking } from "../ui/asking.svelte"
import { words, type Filter } from "./filter"
import { matching } from "./listing"

export type Verb = "cancel" | "replay" | "discard"

export const VERBS: Record<Verb, { name: string; past: string; states: string[]; danger: boolean; note: string }> = {
  cancel: {
    name: "Cancel",
    past: "cancelled",
    states: ["ready", "scheduled", "blocked", "running"],
    danger: true,
    note: "Those that wait are cancelled at once; workers are asked to stop those that run.",
  },
  replay: { name: "Replay", past: "replayed", states: ["dead"], danger: false, note: "They become ready, with all their attempts." },
  discard: { name: "Discard", past: "discarded", states: ["dead"], danger: true, note: "They are removed, with their payloads. This cannot be undone." },
}

const MOST = 100_000
const BATCH = 500
const ROUTES: Record<Verb, string> = { cancel: "/v1/jobs/cancel", replay: "/v1/jobs/replay", discard: "/v1/dead/discard" }

class Bulk {
  /** What is going on, in words; empty when nothing is. */
  text = $state("")
  done = $state(0)
  total = $state(0)
  #stop = false

  stop(): void {
    this.#stop = true
  }

  async onSelected(verb: Verb, ids: string[]): Promise<boolean> {
    return this.#confirmed(verb, ids, [`${many(ids.length, "job")} selected.`])
  }

  async onMatching(verb: Verb, filter: Filter): Promise<boolean> {
    this.#begin("Counting what matches", 0)
    try {
      const { ids, more } = await matching(filter, VERBS[verb].states, MOST, (found) => {
        this.done = found
        return !this.#stop
      })
      this.text = ""
      if (this.#stop) return false
      if (!ids.length) {
        asking.tell(`No job that matches can be ${VERBS[verb].past}`)
        return false
      }
      const text = [`Everything that matches: ${words(filter)}.`, `${more ? "The first " : ""}${many(ids.length, "job")} of ${VERBS[verb].states.join(", ")}.`]
      return await this.#confirmed(verb, ids, text)
    } catch (error) {
      asking.tell(said(error), { bad: true })
      return false
    } finally {
      this.text = ""
    }
  }

  async #confirmed(verb: Verb, ids: string[], text: string[]): Promise<boolean> {
    const { name, note, danger } = VERBS[verb]
    const jobs = many(ids.length, "job")
    const fields = verb === "discard" ? reasonFields : perhapsReason
    const answers = await asking.ask({ title: `${name} ${jobs}?`, text: [...text, note], confirm: `${name} ${jobs}`, danger, fields })
    if (!answers) return false
    await this.#carryOut(verb, ids, answers.reason)
    return true
  }

  async #carryOut(verb: Verb, ids: string[], reason?: string): Promise<void> {
    const sum = { applied: 0, flagged: 0, passed: 0 }
    this.#begin(`${VERBS[verb].past[0]!.toUpperCase()}${VERBS[verb].past.slice(1)}`, ids.length)
    try {
      for (let start = 0; start < ids.length && !this.#stop; start += BATCH) {
        const batch = ids.slice(start, start + BATCH)
        const answers = await post<Operated[]>(ROUTES[verb], { ids: batch, reason: reason ?? "" })
        for (const { effect } of answers) sum[effect === "applied" || effect === "flagged" ? effect : "passed"]++
        this.done = start + batch.length
      }
      const parts = [`${count(sum.applied + sum.flagged)} of ${many(ids.length, "job")} ${VERBS[verb].past}`]
      if (sum.flagged) parts.push(`${count(sum.flagged)} of them run and were asked to stop`)
      if (sum.passed) parts.push(`${count(sum.passed)} were in another state by then`)
      asking.tell(parts.join("; "))
    } catch (error) {
      asking.tell(`Stopped after ${count(this.done)}: ${said(error)}`, { bad: true })
    } finally {
      this.text = ""
      pulse.nudge()
    }
  }

  #begin(text: string, total: number): void {
    this.text = text
    this.done = 0
    this.total = total
    this.#stop = false
  }
}

export const bulk = new Bulk()
