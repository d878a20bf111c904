// How many dead letters a question is about: counted when it is asked, so that the number is exact or says "more than".
import { get, type Query } from "../api/client"
import type { DeadCount } from "../api/types"
import { many } from "../format/number"

/** Milliseconds that somebody waits for an exact number; what was counted by then is told as "more than". */
const PATIENCE = 4_000

export interface Counted {
  count: number
  /** There may be others. */
  more: boolean
  /** What died later was not counted. */
  at: string
}

export async function countDead(filter: Query): Promise<Counted> {
  const end = Date.now() + PATIENCE
  let told = await get<DeadCount>("/v1/dead/count", filter)
  const { at } = told
  let sum = told.count
  while (told.cursor !== null && (sum === 0 || Date.now() < end)) {
    told = await get<DeadCount>("/v1/dead/count", { ...filter, until: at, cursor: told.cursor })
    sum += told.count
  }
  return { count: sum, more: told.cursor !== null, at }
}

export const lettersOf = ({ count, more }: Pick<Counted, "count" | "more">) => (more ? "more than " : "") + many(count, "dead letter")
