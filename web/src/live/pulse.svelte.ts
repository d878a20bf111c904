// When to look again. Events from the server say that something changed; a slow timer looks anyway, because a
// queue may emit no events. Nothing is asked while the tab is hidden.

import { base } from "../base"

const SOON = 1_000 // after an event, so that ten thousand of them a minute cost one request a second
const SLOW = 3_000

export type Mode = "live" | "polling" | "hidden" | "away"

class Pulse {
  /** Grows when what is shown may be out of date. */
  beat = $state(0)
  /** The beat that came of something the viewer did: everything is looked at again, however dear. */
  nudged = 0
  /** The time now, once a second: for ages. */
  now = $state(Date.now())
  visible = $state(!document.hidden)
  streaming = $state(false)
  /** Since when nobody answers. */
  awaySince = $state<number | null>(null)
  /** Events that came by the stream, for the curious. */
  events = 0

  #dirty = false
  #last = Date.now()
  #source: EventSource | null = null
  #retry = 1_000
  #retryAt = 0
  #enabled = false

  get mode(): Mode {
    if (!this.visible) return "hidden"
    if (this.awaySince !== null) return "away"
    return this.streaming ? "live" : "polling"
  }

  start(): void {
    if (this.#enabled) return
    this.#enabled = true
    document.addEventListener("visibilitychange", () => this.#turn())
    setInterval(() => this.#tick(), 1_000)
    this.#open()
  }

  /** Look again now. */
  nudge(): void {
    this.#last = Date.now()
    this.#dirty = false
    this.nudged = ++this.beat
  }

  answered(): void {
    if (this.awaySince !== null) this.awaySince = null
  }

  unanswered(): void {
    if (this.awaySince === null) this.awaySince = Date.now()
  }

  #turn(): void {
    this.visible = !document.hidden
    if (this.visible) {
      this.now = Date.now()
      this.#retryAt = 0
      this.#open()
      this.nudge()
    } else {
      this.#close()
    }
  }

  #tick(): void {
    if (!this.visible) return
    this.now = Date.now()
    if (!this.#source && this.now >= this.#retryAt) this.#open()
    if (this.now - this.#last >= (this.#dirty ? SOON : SLOW) - 50) this.nudge()
  }

  #open(): void {
    if (this.#source || !this.visible || !this.#enabled) return
    const source = new EventSource(`${base}/v1/events`)
    this.#source = source
    const arrived = () => {
      this.events++
      this.#dirty = true
    }
    source.onopen = () => {
      this.streaming = true
      this.#retry = 1_000
    }
    source.addEventListener("job", arrived)
    source.addEventListener("gap", arrived)
    source.addEventListener("bye", () => source.onerror?.(new Event("error")))
    source.onerror = () => {
      this.#close()
      this.#retryAt = Date.now() + this.#retry
      this.#retry = Math.min(30_000, this.#retry * 2)
    }
  }

  #close(): void {
    this.#source?.close()
    this.#source = null
    this.streaming = false
  }
}

export const pulse = new Pulse()
