// Pages of jobs. One of the API has looked at about 10,000 jobs, and may be short, even empty, before the end.
import { get } from "../api/client"
import type { Job, Page } from "../api/types"
import { asked, type Filter } from "./filter"

/** Pages that are asked for while none of them has anything. */
const LOOKS = 4
const LARGEST = 1_000

export async function jobPage(filter: Filter, cursor: string, size: number, signal: AbortSignal): Promise<Page<Job>> {
  let page: Page<Job> = { items: [], cursor: cursor || null }
  for (let look = 0; look < LOOKS; look++) {
    page = await get<Page<Job>>("/v1/jobs", { ...asked(filter), limit: size, cursor: page.cursor }, signal)
    if (page.items.length || page.cursor === null) break
  }
  return page
}

/** Ids of all jobs that match and are in one of the states, up to a number; `more`: there are others. */
export async function matching(filter: Filter, states: string[], most: number, told: (count: number) => boolean): Promise<{ ids: string[]; more: boolean }> {
  const ids = new Set<string>()
  const wished = filter.states.filter((state) => states.includes(state))
  if (filter.states.length && !wished.length) return { ids: [], more: false }
  let cursor: string | null = null
  do {
    const page: Page<Job> = await get<Page<Job>>("/v1/jobs", { ...asked(filter), state: wished.length ? wished : states, limit: LARGEST, cursor })
    for (const job of page.items) ids.add(job.id)
    cursor = page.cursor
    if (!told(ids.size)) return { ids: [], more: true }
    if (ids.size >= most) return { ids: [...ids].slice(0, most), more: cursor !== null || ids.size > most }
  } while (cursor !== null)
  return { ids: [...ids], more: false }
}
