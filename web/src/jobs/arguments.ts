// The arguments of a job as text that can be edited: by name, and with its secrets only if the viewer asks for them.
import { get, part, said } from "../api/client"
import { write } from "../api/json"
import type { JobWhole, Task } from "../api/types"
import { viewer } from "../shell/viewer.svelte"
import { asking } from "../ui/asking.svelte"

const MASK = "[secret]"

export interface Editable {
  text: string
  notes: string[]
}

/** Null: it is not to be, or cannot be. */
export async function editable(job: JobWhole): Promise<Editable | null> {
  const notes: string[] = []
  let payload = job.payload
  try {
    if (write(payload).includes(MASK)) {
      if (viewer.mayOperate) {
        const yes = await asking.ask({ title: "Show the secrets of this payload?", text: ["It holds secrets, which are needed to write it anew. That they were shown goes on record."], confirm: "Show them" })
        if (!yes) return null
        payload = (await get<JobWhole>(`/v1/jobs/${part(job.id)}`, { secrets: true })).payload
      } else notes.push("Secrets are masked: type them anew, or the masks are taken for values.")
    }
    if (payload === null || typeof payload === "string") return { text: "{}", notes: [...notes, payload ?? "The payload is not kept."] }
    return { text: write({ ...(await named(job.task, payload.args)), ...payload.kwargs }, 2), notes }
  } catch (error) {
    asking.tell(said(error), { bad: true })
    return null
  }
}

/** Arguments by place with the names that the task has for them. */
async function named(task: string, args: unknown[]): Promise<Record<string, unknown>> {
  if (!args.length) return {}
  const known = await get<Task>(`/v1/tasks/${part(task)}`)
  const names = Object.keys((known.arguments.properties as object | undefined) ?? {})
  return Object.fromEntries(args.map((value, index) => [names[index] ?? `argument ${index + 1}`, value]))
}
