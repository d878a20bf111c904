// The protocol of a peer written for Node, as `bench_peer.py` has it for Python: `node peer.mjs VERB ...`.
// A peer gives an object of functions: prepare, open, enqueue, bulk, ping, close, work.

import fs from "node:fs";
import path from "node:path";

export const URL_OF_STORE = process.env.BENCH_URL ?? "";
export const CALL = 1000;
export const WORKERS = 2;
const MARKS = process.env.BENCH_MARKS ?? ".";

export const now = () => Number(process.hrtime.bigint()) / 1e9;

let starts = 0;
let first = 0;
let last = 0;
let file = -1;
let latencies = -1;

function show() {
  const bytes = Buffer.alloc(24);
  bytes.writeBigUInt64LE(BigInt(starts), 0);
  bytes.writeDoubleLE(first, 8);
  bytes.writeDoubleLE(last, 16);
  fs.writeSync(file, bytes, 0, 24, 0);
}

/** Note a start. A timer shows it: Node has no shared memory with others. */
export function mark() {
  last = now();
  if (file < 0) {
    first = last;
    file = fs.openSync(path.join(MARKS, `${process.pid}.starts`), "w");
    setInterval(show, 10);
  }
  starts += 1;
}

/** Note how long ago a job was sent. */
export function ping(sent) {
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleLE(now() - sent, 0);
  if (latencies < 0) latencies = fs.openSync(path.join(MARKS, `${process.pid}.latencies`), "a");
  fs.writeSync(latencies, bytes);
}

const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

function cpu() {
  const used = process.cpuUsage();
  return (used.user + used.system) / 1e6;
}

function rate(began, spent, jobs, waits) {
  const seconds = now() - began;
  waits.sort((one, other) => one - other);
  return {
    jobs,
    began,
    rate: jobs / seconds,
    client_us: ((cpu() - spent) / jobs) * 1e6,
    p50_ms: waits[Math.floor(waits.length / 2)] * 1e3,
    p99_ms: waits[Math.floor(waits.length * 0.99)] * 1e3,
  };
}

async function timed(calls, each, call) {
  await call();
  const waits = [];
  const began = now();
  const spent = cpu();
  let before = began;
  for (let index = 1; index < calls; index++) {
    await call();
    const after = now();
    waits.push(after - before);
    before = after;
  }
  return rate(began, spent, (calls - 1) * each, waits);
}

async function concurrent(peer, count, text, callers) {
  const waits = [];
  const each = Math.floor(count / callers);
  const caller = async () => {
    for (let index = 0; index < each; index++) {
      const before = now();
      await peer.enqueue(text);
      waits.push(now() - before);
    }
  };
  await peer.enqueue(text);
  const began = now();
  const spent = cpu();
  await Promise.all(Array.from({ length: callers }, caller));
  return rate(began, spent, each * callers, waits);
}

async function drive(peer, verb, numbers) {
  if (verb === "prepare") {
    await peer.prepare?.();
    return {};
  }
  await peer.open?.();
  try {
    const [count, second, third] = numbers;
    const text = "x".repeat(second);
    if (verb === "single") return await timed(count, 1, () => peer.enqueue(text));
    if (verb === "concurrent") return await concurrent(peer, count, text, third);
    if (verb === "bulk") {
      if (!peer.bulk) return { absent: verb };
      const texts = Array.from({ length: CALL }, () => text);
      return await timed(count / CALL, CALL, () => peer.bulk(texts));
    }
    for (let index = 0; index < count; index++) {
      await peer.ping(now(), third);
      await pause(second);
    }
    return { jobs: count };
  } finally {
    await peer.close?.();
  }
}

export async function main(peer) {
  const [verb, ...rest] = process.argv.slice(2);
  if (verb === "work") {
    await peer.work();
    return;
  }
  console.log(JSON.stringify(await drive(peer, verb, rest.map(Number))));
  process.exit(0);
}
