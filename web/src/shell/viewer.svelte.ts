// Who looks, and what they may do.
import { get, post, Problem, remove, whenUnauthorized } from "../api/client"
import type { Who } from "../api/types"

class Viewer {
  who = $state.raw<Who | null>(null)
  /** A key is wanted. */
  locked = $state(false)
  problem = $state.raw<Problem | null>(null)

  constructor() {
    whenUnauthorized(() => (this.locked = true))
  }

  get mayOperate(): boolean {
    return this.who?.scopes.includes("operate") ?? false
  }

  get mayEnqueue(): boolean {
    return this.who?.scopes.includes("enqueue") ?? false
  }

  get mayRead(): boolean {
    return this.mayOperate || (this.who?.scopes.includes("read") ?? false)
  }

  async look(): Promise<void> {
    try {
      this.who = await get<Who>("/v1/session")
      this.locked = false
      this.problem = null
    } catch (error) {
      if (error instanceof Problem && error.status !== 401) this.problem = error
    }
  }

  async enter(key: string): Promise<void> {
    await post("/v1/session", { key })
    await this.look()
  }

  async leave(): Promise<void> {
    await remove("/v1/session")
    this.who = null
    this.locked = true
  }
}

export const viewer = new Viewer()
