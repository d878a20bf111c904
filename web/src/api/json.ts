// JSON without loss: integers that a double cannot hold become bigints, and are written back digit by digit.
// The one place where text from the server becomes values.

export type Json = null | boolean | number | bigint | string | Json[] | { [name: string]: Json }

const LONG = /\d{16}/
const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y
const STRING = /"(?:[^"\\\u0000-\u001f]|\\.)*"/y
const SPACE = /[ \t\n\r]*/y

/** Parse JSON text. Most texts hold no long number and go the browser's own way. */
export function parse(text: string): Json {
  return LONG.test(text) ? new Reader(text).whole() : (JSON.parse(text) as Json)
}

/** Write a value, bigints as the integers that they are. */
export function write(value: unknown, indent = 0, depth = 0): string {
  if (typeof value === "bigint") return value.toString()
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null"
  const inner = indent ? "\n" + " ".repeat(indent * (depth + 1)) : ""
  const outer = indent ? "\n" + " ".repeat(indent * depth) : ""
  const list = Array.isArray(value)
  const parts = list
    ? value.map((each) => write(each, indent, depth + 1))
    : Object.entries(value)
        .filter(([, each]) => each !== undefined)
        .map(([name, each]) => `${JSON.stringify(name)}:${indent ? " " : ""}${write(each, indent, depth + 1)}`)
  if (!parts.length) return list ? "[]" : "{}"
  return (list ? "[" : "{") + inner + parts.join("," + inner) + outer + (list ? "]" : "}")
}

class Reader {
  private at = 0
  constructor(private readonly text: string) {}

  whole(): Json {
    const value = this.value()
    this.space()
    if (this.at !== this.text.length) throw this.wrong()
    return value
  }

  private value(): Json {
    this.space()
    switch (this.text[this.at]) {
      case "{":
        return this.object()
      case "[":
        return this.list()
      case '"':
        return this.string()
      case "t":
        return this.word("true", true)
      case "f":
        return this.word("false", false)
      case "n":
        return this.word("null", null)
      default:
        return this.number()
    }
  }

  private object(): Json {
    const found: { [name: string]: Json } = {}
    this.at++
    if (this.take("}")) return found
    do {
      this.space()
      const name = this.string()
      if (!this.take(":")) throw this.wrong()
      // Not by assignment: "__proto__" is a name like any other.
      Object.defineProperty(found, name, { value: this.value(), enumerable: true, writable: true, configurable: true })
    } while (this.take(","))
    if (!this.take("}")) throw this.wrong()
    return found
  }

  private list(): Json {
    const found: Json[] = []
    this.at++
    if (this.take("]")) return found
    do found.push(this.value())
    while (this.take(","))
    if (!this.take("]")) throw this.wrong()
    return found
  }

  private string(): string {
    return JSON.parse(this.match(STRING)[0]) as string
  }

  private number(): number | bigint {
    const [text, fraction, exponent] = this.match(NUMBER)
    const value = Number(text)
    return fraction === undefined && exponent === undefined && !Number.isSafeInteger(value) ? BigInt(text) : value
  }

  private word<T>(text: string, value: T): T {
    if (!this.text.startsWith(text, this.at)) throw this.wrong()
    this.at += text.length
    return value
  }

  private match(pattern: RegExp): RegExpExecArray {
    pattern.lastIndex = this.at
    const found = pattern.exec(this.text)
    if (!found) throw this.wrong()
    this.at = pattern.lastIndex
    return found
  }

  private take(mark: string): boolean {
    this.space()
    if (this.text[this.at] !== mark) return false
    this.at++
    return true
  }

  private space(): void {
    SPACE.lastIndex = this.at
    SPACE.exec(this.text)
    this.at = SPACE.lastIndex
  }

  private wrong(): SyntaxError {
    return new SyntaxError(`not JSON at character ${this.at}`)
  }
}
