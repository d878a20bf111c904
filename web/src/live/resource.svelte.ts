// Something of the server's that is shown, and kept up to date while it is.
import { untrack } from "svelte"
import { Problem } from "../api/client"
import { pulse } from "./pulse.svelte"

export class Resource<T> {
  data = $state.raw<T | null>(null)
  problem = $state.raw<Problem | null>(null)
  /** When the data came. */
  at = $state(0)
  #flight: AbortController | null = null
  #again = false
  #load: (signal: AbortSignal) => Promise<T>

  constructor(load: (signal: AbortSignal) => Promise<T>) {
    this.#load = load
  }

  /** Whether there is nothing to show yet, and no reason why. */
  get waiting(): boolean {
    return this.data === null && this.problem === null
  }

  /** Look again; a look that is under way is followed by one more. */
  async refresh(): Promise<void> {
    if (this.#flight) {
      this.#again = true
      return
    }
    const flight = (this.#flight = new AbortController())
    try {
      const data = await this.#load(flight.signal)
      if (flight.signal.aborted) return
      this.data = data
      this.problem = null
      this.at = Date.now()
      pulse.answered()
    } catch (error) {
      if (flight.signal.aborted) return
      this.problem = error instanceof Problem ? error : new Problem(-1, `the page has failed: ${String(error)}`)
      if (this.problem.away) pulse.unanswered()
      else pulse.answered()
    } finally {
      if (this.#flight === flight) {
        this.#flight = null
        if (this.#again) {
          this.#again = false
          void this.refresh()
        }
      }
    }
  }

  /** Drop what is under way; with `forget`, what is shown as well. */
  stop({ forget = false } = {}): void {
    this.#flight?.abort()
    this.#flight = null
    this.#again = false
    if (forget) {
      this.data = null
      this.problem = null
    }
  }
}

interface Wishes {
  /** Look again with every beat; by default so. */
  live?: boolean
  /** Keep showing what was there while something else is being loaded. */
  keep?: boolean
  /** Milliseconds between two looks at the least, unless the viewer did something: for what is dear to ask. */
  pace?: () => number
}

/** Load something when `key` changes, and again with every beat. To be called while a component is set up. */
export function resource<T>(key: () => unknown, load: (signal: AbortSignal) => Promise<T>, wishes: Wishes = {}): Resource<T> {
  const found = new Resource(load)
  $effect(() => {
    key()
    untrack(() => {
      found.stop({ forget: !wishes.keep })
      void found.refresh()
    })
    return () => found.stop()
  })
  if (wishes.live !== false) {
    let first = true
    $effect(() => {
      void pulse.beat
      if (!first) {
        untrack(() => {
          if (pulse.nudged === pulse.beat || Date.now() - found.at >= (wishes.pace?.() ?? 0)) void found.refresh()
        })
      }
      first = false
    })
  }
  return found
}
