// The last minutes, remembered by the page itself: depths and throughput without a history database. A ring of
// fixed size, so that a tab left open for a week holds what one opened an hour ago holds.
import { untrack } from "svelte"
import { get } from "../api/client"
import type { Overview, Queue } from "../api/types"
import { Resource } from "./resource.svelte"
import { pulse } from "./pulse.svelte"

const KEPT = 300
/** Milliseconds between two looks that nobody sees: so that a chart has no gap when it is come back to. */
const UNSEEN = 10_000

interface Look {
  at: number
  ready: number
  running: number
  waiting: number
  ended: number
  dead: number
  queues: Map<string, { ready: number; ended: number }>
}

/** Jobs that reached an end: done and cancelled count transitions, dead letters those that are kept. */
const ended = (jobs: Queue["jobs"]) => jobs.done + jobs.cancelled

class Recent {
  looks = $state.raw<Look[]>([])
  overview = new Resource((signal) => this.#look(signal))
  #watching = false
  #viewers = 0

  /** Look with every beat while the component lives that calls this, and now and then afterwards. */
  watch(): void {
    $effect(() => {
      this.#viewers++
      return () => void this.#viewers--
    })
    if (this.#watching) return
    this.#watching = true
    $effect.root(() => {
      $effect(() => {
        void pulse.beat
        untrack(() => {
          if (this.#viewers || Date.now() - this.overview.at > UNSEEN) void this.overview.refresh()
        })
      })
    })
  }

  async #look(signal: AbortSignal): Promise<Overview> {
    const overview = await get<Overview>("/v1/overview", {}, signal)
    const { jobs } = overview
    const look: Look = {
      at: Date.parse(overview.now) / 1000,
      ready: jobs.ready,
      running: jobs.running,
      waiting: jobs.scheduled + jobs.blocked,
      ended: ended(jobs),
      dead: jobs.dead,
      queues: new Map(overview.queues.map((queue) => [queue.name, { ready: queue.jobs.ready, ended: ended(queue.jobs) }])),
    }
    const last = this.looks.at(-1)
    if (!last || look.at - last.at >= 0.5) this.looks = [...this.looks.slice(-KEPT + 1), look]
    return overview
  }

  /** Ends per second between looks, over all queues or one. */
  rates(queue?: string): (number | null)[] {
    const count = (look: Look) => (queue === undefined ? look.ended : look.queues.get(queue)?.ended)
    return this.looks.map((look, index) => {
      const before = this.looks[index - 1]
      if (!before) return null
      const now = count(look)
      const then = count(before)
      const seconds = look.at - before.at
      return now === undefined || then === undefined || seconds <= 0 || seconds > 30 ? null : Math.max(0, (now - then) / seconds)
    })
  }

  /** Ends per second over the last ten seconds or so. */
  rate(queue?: string): number | null {
    const last = this.rates(queue).slice(-4).filter((value) => value !== null)
    return last.length ? last.reduce((sum, value) => sum + value, 0) / last.length : null
  }

  depths(queue: string): number[] {
    return this.looks.map((look) => look.queues.get(queue)?.ready ?? 0)
  }
}

export const recent = new Recent()
