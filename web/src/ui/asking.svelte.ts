// Questions before something is done, and what is said afterwards.
import { said } from "../api/client"
import { pulse } from "../live/pulse.svelte"

export interface Question {
  title: string
  /** Paragraphs. */
  text?: string[]
  confirm: string
  danger?: boolean
  fields?: Field[]
}

export interface Field {
  name: string
  label: string
  value?: string
  hint?: string
  kind?: "text" | "json" | "number"
  required?: boolean
  /** Characters. */
  most?: number
}

export type Answers = Record<string, string>

interface Open extends Question {
  resolve: (answers: Answers | null) => void
}

export interface Said {
  id: number
  text: string
  bad: boolean
  link?: { href: string; text: string } | undefined
}

class Asking {
  open = $state.raw<Open | null>(null)
  said = $state.raw<Said[]>([])
  #next = 1

  /** Ask; null when it is not to be. */
  ask(question: Question): Promise<Answers | null> {
    return new Promise((resolve) => {
      this.open = { ...question, resolve }
    })
  }

  answer(answers: Answers | null): void {
    this.open?.resolve(answers)
    this.open = null
  }

  tell(text: string, { bad = false, link }: { bad?: boolean; link?: Said["link"] } = {}): void {
    const id = this.#next++
    this.said = [...this.said.slice(-3), { id, text, bad, link }]
    setTimeout(() => this.drop(id), bad ? 12_000 : 6_000)
  }

  drop(id: number): void {
    this.said = this.said.filter((each) => each.id !== id)
  }
}

export const asking = new Asking()

/** Do something, say how it went, and look again. Returns what it gave, or null. */
export async function attempt<T>(act: () => Promise<T>, done?: string | ((answer: T) => string)): Promise<T | null> {
  try {
    const answer = await act()
    if (done) asking.tell(typeof done === "string" ? done : done(answer))
    pulse.nudge()
    return answer
  } catch (error) {
    asking.tell(said(error), { bad: true })
    return null
  }
}
