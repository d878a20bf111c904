// Why dead letters are discarded. Asked for as soon as the API takes it: when it does, this file does not build
// until it says so.
import type * as api from "../api/schema"
import type { Field } from "../ui/asking.svelte"

type Takes = "reason" extends keyof api.Ids & keyof api.NewOperation ? true : false
export const takesReason: Takes = false

export const reasonFields: Field[] = takesReason ? [{ name: "reason", label: "Reason, for the record", required: true }] : []
