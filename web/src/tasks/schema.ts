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

/** What was typed as the value of an argument; undefined: it is left out. Throws what is wrong with it. */
export function valueOf(argument: Argument, text: string): Json | undefined {
  if (text === "") {
    if (!argument.required) return undefined
    if (argument.nullable) return null
    if (argument.kind === "text") return ""
    throw new Error(`${argument.name} is needed`)
  }
  if (argument.kind === "text") return argument.nullable && text === "null" ? null : text
  try {
    return parse(text)
  } catch {
    throw new Error(`${argument.name}: this is not ${argument.kind === "json" ? "JSON" : `a ${argument.kind}`}`)
  }
}
