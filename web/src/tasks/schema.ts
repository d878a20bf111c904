// The arguments of a task, from its JSON Schema: what a form shows of each, and what a typed text means.
import { parse, write, type Json } from "../api/json"

export interface Schema {
  type?: string | string[]
  title?: string
  description?: string
  default?: Json
  enum?: Json[]
  anyOf?: Schema[]
  properties?: Record<string, Schema>
  required?: string[]
  format?: string
  writeOnly?: boolean
  $ref?: string
  $defs?: Record<string, Schema>
  additionalProperties?: boolean | Schema
  items?: Schema
}

export type Kind = "text" | "integer" | "number" | "boolean" | "choice" | "json"

export interface Argument {
  name: string
  kind: Kind
  required: boolean
  nullable: boolean
  secret: boolean
  choices: Json[]
  /** Its type and default in words. */
  hint: string
}

export function argumentsOf(schema: Schema): Argument[] {
  return Object.entries(schema.properties ?? {}).map(([name, each]) => {
    const { plain, nullable } = resolved(each, schema)
    const kind = kindOf(plain)
    const required = schema.required?.includes(name) ?? false
    return { name, kind, required, nullable, secret: each.writeOnly ?? false, choices: plain.enum ?? [], hint: hintOf(each, plain, kind, required, nullable) }
  })
}

/** Whether arguments besides those that are named are taken. */
export const isOpen = (schema: Schema) => schema.additionalProperties !== undefined && schema.additionalProperties !== false

function resolved(schema: Schema, root: Schema): { plain: Schema; nullable: boolean } {
  let plain = schema
  for (let step = 0; plain.$ref && step < 10; step++) plain = root.$defs?.[plain.$ref.split("/").at(-1)!] ?? {}
  if (plain.anyOf) {
    const others = plain.anyOf.filter((each) => each.type !== "null")
    if (others.length === 1) return { plain: resolved(others[0]!, root).plain, nullable: others.length < plain.anyOf.length }
  }
  return { plain, nullable: false }
}

function kindOf(schema: Schema): Kind {
  if (schema.enum) return "choice"
  switch (schema.type) {
    case "string":
      return "text"
    case "integer":
      return "integer"
    case "number":
      return "number"
    case "boolean":
      return "boolean"
    default:
      return "json"
  }
}

function hintOf(schema: Schema, plain: Schema, kind: Kind, required: boolean, nullable: boolean): string {
  const parts: string[] = []
  if (kind === "json") parts.push(plain.type ? `JSON, ${String(plain.type)}` : "JSON")
  else if (kind === "text") parts.push(plain.format ?? "text")
  else if (kind !== "choice") parts.push(kind)
  if (nullable) parts.push("or null")
  if (!required) parts.push(schema.default === undefined ? "may be left out" : `else ${write(schema.default)}`)
  if (schema.description) parts.push(schema.description)
  return parts.join(", ")
}

/** A signature in one line. */
export function signature(schema: Schema): string {
  const parts = argumentsOf(schema).map((each) => `${each.name}${each.required ? "" : "?"}: ${each.kind === "choice" ? each.choices.map((choice) => write(choice)).join(" | ") : each.kind}`)
  if (isOpen(schema)) parts.push("…")
  return `(${parts.join(", ")})`
}

/** What is wrong with what was typed for an argument. */
export class Mistyped extends Error {
  constructor(
    readonly field: string,
    detail: string,
  ) {
    super(detail)
  }
}

const CALLED: Record<Kind, string> = { text: "text", integer: "an integer", number: "a number", boolean: "true or false", choice: "one of the choices", json: "JSON" }

/** What was typed as the value of an argument; undefined: it is left out. Throws `Mistyped`. */
export function valueOf(argument: Argument, text: string): Json | undefined {
  if (text === "") {
    if (argument.required) throw new Mistyped(argument.name, "this is needed")
    return undefined
  }
  if (argument.nullable && text.trim() === "null") return null
  if (argument.kind === "text") return text
  const wrong = new Mistyped(argument.name, `this is not ${CALLED[argument.kind]}`)
  let value: Json
  try {
    value = parse(text)
  } catch {
    throw wrong
  }
  if (!fits(argument, value)) throw wrong
  return value
}

function fits({ kind }: Argument, value: Json): boolean {
  const isNumber = typeof value === "number" || typeof value === "bigint"
  if (kind === "integer") return isNumber && (typeof value === "bigint" || Number.isInteger(value))
  if (kind === "number") return isNumber
  return kind !== "boolean" || typeof value === "boolean"
}
