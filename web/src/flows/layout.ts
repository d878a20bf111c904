// A layered drawing of a flow: each job stands to the right of all that it waits for; within a layer, near them.
import type { FlowEdge, Job } from "../api/types"

export const BOX = { width: 168, height: 44, gapX: 64, gapY: 14 }

export interface Node {
  job: Job
  layer: number
  x: number
  y: number
}

export interface Drawing {
  nodes: Node[]
  lines: { from: Node; to: Node; spawned: boolean; edge: FlowEdge }[]
  width: number
  height: number
}

export function drawing(jobs: Job[], edges: FlowEdge[]): Drawing {
  const known = new Map(jobs.map((job) => [job.id, job]))
  const waits = edges.filter((edge) => known.has(edge.parent) && known.has(edge.child))
  const spawns: FlowEdge[] = jobs
    .filter((job) => job.parent && known.has(job.parent) && !waits.some((edge) => edge.child === job.id && edge.parent === job.parent))
    .map((job) => ({ parent: job.parent!, child: job.id, on_failure: "" }))
  const all = [...waits, ...spawns]
  const parents = new Map<string, string[]>()
  for (const edge of all) parents.set(edge.child, [...(parents.get(edge.child) ?? []), edge.parent])

  const layers = layered(jobs, parents)
  const nodes = new Map<string, Node>()
  let tallest = 0
  for (const [layer, members] of layers.entries()) {
    const ordered = layer === 0 ? members : sortedBy(members, (job) => mean((parents.get(job.id) ?? []).map((id) => nodes.get(id)?.y ?? 0)))
    ordered.forEach((job, row) => nodes.set(job.id, { job, layer, x: layer * (BOX.width + BOX.gapX), y: row * (BOX.height + BOX.gapY) }))
    tallest = Math.max(tallest, members.length)
  }
  // Short layers stand in the middle of tall ones.
  const height = tallest * (BOX.height + BOX.gapY) - BOX.gapY
  for (const node of nodes.values()) {
    const own = layers[node.layer]!.length * (BOX.height + BOX.gapY) - BOX.gapY
    node.y += (height - own) / 2
  }
  const lines = all.map((edge) => ({ from: nodes.get(edge.parent)!, to: nodes.get(edge.child)!, spawned: edge.on_failure === "", edge }))
  return { nodes: [...nodes.values()], lines, width: layers.length * (BOX.width + BOX.gapX) - BOX.gapX, height: Math.max(height, BOX.height) }
}

/** Jobs by the longest way to them. The stores refuse circles; should there be one, it is cut. */
function layered(jobs: Job[], parents: Map<string, string[]>): Job[][] {
  const depths = new Map<string, number>()
  const under = new Set<string>()
  const depth = (id: string): number => {
    const known = depths.get(id)
    if (known !== undefined) return known
    if (under.has(id)) return 0
    under.add(id)
    const found = Math.max(-1, ...(parents.get(id) ?? []).map(depth)) + 1
    under.delete(id)
    depths.set(id, found)
    return found
  }
  const layers: Job[][] = []
  for (const job of jobs) (layers[depth(job.id)] ??= []).push(job)
  return layers.map((layer) => (layer ?? []).toSorted((a, b) => (a.accepted_at + a.id < b.accepted_at + b.id ? -1 : 1)))
}

const mean = (values: number[]) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : 0)

function sortedBy(jobs: Job[], by: (job: Job) => number): Job[] {
  return jobs.map((job) => [by(job), job] as const).toSorted((a, b) => a[0] - b[0]).map(([, job]) => job)
}
