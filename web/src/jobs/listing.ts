// Pages of jobs. A page of the API may be short, even empty, before the end: these are filled.
import { get } from "../api/client"
import type { Job, Page } from "../api/types"
import { asked, chosenBy, isLoose, type Filter } from "./filter"

const LOOKS = 8
const LARGEST = 1_000
/** Jobs of a look where few of them may match. */
const LOOSE = 500

export async function jobPage(filter: Filter, cursor: string, size: number, signal: AbortSignal): Promise<Page<Job>> {
  const found: Job[] = []
  let next: string | null = cursor || null
  const limit = isLoose(filter) ? LOOSE : size
  for (let look = 0; look < LOOKS; look++) {
    const page: Page<Job> = await get<Page<Job>>("/v1/jobs", { ...asked(filter), limit, cursor: next }, signal)
    found.push(...page.items.filter(chosenBy(filter)))
    next = page.cursor ?? null
    if (next === null || found.length >= size) break
  }
  return { items: found, cursor: next }
}

/** Ids of all jobs that match and are in one of the states, up to a number; `more`: there are others. */
export async function matching(filter: Filter, states: string[], most: number, told: (count: number) => void): Promise<{ ids: string[]; more: boolean }> {
  const ids = new Set<string>()
  const wanted = asked(filter)
  const wished = filter.states.filter((state) => states.includes(state))
  if (filter.states.length && !wished.length) return { ids: [], more: false }
  let cursor: string | null = null
  do {
    const page: Page<Job> = await get<Page<Job>>("/v1/jobs", { ...wanted, state: wished.length ? wished : states, limit: LARGEST, cursor })
    for (const job of page.items.filter(chosenBy(filter))) ids.add(job.id)
    told(ids.size)
    cursor = page.cursor ?? null
    if (ids.size >= most) return { ids: [...ids].slice(0, most), more: cursor !== null || ids.size > most }
  } while (cursor !== null)
  return { ids: [...ids], more: false }
}
