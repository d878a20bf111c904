// Why something is done to many jobs: kept in the record of what operators did.
import type { Field } from "../ui/asking.svelte"

const LONGEST = 500

/** What is discarded is gone for good: that needs a reason. */
export const reasonFields: Field[] = [{ name: "reason", label: "Reason, for the record", required: true, most: LONGEST }]
export const perhapsReason: Field[] = [{ name: "reason", label: "Reason, for the record (may be empty)", most: LONGEST }]
