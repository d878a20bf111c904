// The description of the API as the server tells it (`/openapi.json`), and how its parts are told in words.

export interface Schema {
  type?: string
  title?: string
  description?: string
  format?: string
  default?: unknown
  enum?: unknown[]
  anyOf?: Schema[]
  oneOf?: Schema[]
  properties?: Record<string, Schema>
  required?: string[]
  additionalProperties?: boolean | Schema
  items?: Schema
  minimum?: number
  maximum?: number
  minItems?: number
  maxItems?: number
  maxLength?: number
  $ref?: string
}

export interface Parameter {
  name: string
  in: string
  description?: string
  required: boolean
  schema: Schema
}

interface Body {
  description?: string
  content?: Record<string, { schema: Schema }>
}

export interface Operation {
  tags?: string[]
  summary?: string
  description?: string
  operationId: string
  parameters?: Parameter[]
  requestBody?: Body
  responses: Record<string, Body>
  "x-scopes"?: string[]
}

export interface Description {
  info: { title: string; version: string; description: string }
  paths: Record<string, Record<string, Operation>>
  components: { schemas: Record<string, Schema> }
}

export interface Route extends Operation {
  method: string
  path: string
}

/** All operations by their tag, in the order of the alphabet. */
export function groups({ paths }: Description, text: string): [string, Route[]][] {
  const found = new Map<string, Route[]>()
  const wanted = text.trim().toLowerCase()
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const told = `${method} ${path} ${operation.summary ?? ""} ${operation.description ?? ""}`.toLowerCase()
      if (!told.includes(wanted)) continue
      const tag = operation.tags?.[0] ?? "other"
      found.set(tag, [...(found.get(tag) ?? []), { ...operation, method: method.toUpperCase(), path }])
    }
  }
  return [...found].sort(([one], [other]) => one.localeCompare(other))
}

/** The schema of a body, whatever its media type. */
export const bodyOf = (body: Body | undefined): Schema | undefined => Object.values(body?.content ?? {})[0]?.schema

/** The name of the schema that is referred to. */
export const nameOf = (schema: Schema) => schema.$ref?.split("/").at(-1)

/** What names a schema refers to, so that each can be a link. */
export type Part = { text: string; name?: string }

/** A type in one line: "array of Job or null". */
export function inWords(schema: Schema): Part[] {
  const name = nameOf(schema)
  if (name) return [{ text: name, name }]
  const several = schema.anyOf ?? schema.oneOf
  if (several) return several.flatMap((each, at) => (at ? [{ text: " or " }, ...inWords(each)] : inWords(each)))
  if (schema.enum) return [{ text: schema.enum.map((each) => JSON.stringify(each)).join(" | ") }]
  if (schema.type === "array") return [{ text: "array of " }, ...(schema.items ? inWords(schema.items) : [{ text: "anything" }])]
  const more = schema.additionalProperties
  if (schema.type === "object" && typeof more === "object") return [{ text: "object of " }, ...inWords(more)]
  return [{ text: schema.type ?? "anything" }]
}

/** What a value must be besides its type, and what it is when it is left out. */
export function bounds(schema: Schema): string {
  const [first] = (schema.anyOf ?? schema.oneOf ?? []).filter((each) => each.type !== "null")
  const all = { ...first, ...schema }
  const said = [
    all.minimum !== undefined ? `at least ${all.minimum}` : "",
    all.maximum !== undefined ? `at most ${all.maximum}` : "",
    all.maxLength !== undefined ? `up to ${all.maxLength} characters` : "",
    all.minItems !== undefined ? `at least ${all.minItems} items` : "",
    all.maxItems !== undefined ? `up to ${all.maxItems} items` : "",
    all.default !== undefined && all.default !== null ? `else ${JSON.stringify(all.default)}` : "",
  ]
  return said.filter(Boolean).join(", ")
}
