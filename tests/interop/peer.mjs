// What the programs of all stacks have in common: how they report, and when they end.

import { setTimeout as sleep } from "node:timers/promises";

/** A watcher has enough with so many audio packets of each stream: two seconds. */
export const AUDIO_PACKETS = 100;

/** Resolves when the runner closes our input, or is gone itself. */
export function inputEnded() {
  return new Promise((resolve) => process.stdin.once("close", () => resolve(true)).resume());
}

/** One line of JSON for the runner. */
export function say(value) {
  console.log(JSON.stringify(value));
}

/** Calls `probe` until it returns something true, and returns that; `stop` ends the wait sooner. */
export async function until(what, seconds, probe, stop = new Promise(() => {})) {
  const end = Date.now() + 1000 * seconds;
  for (;;) {
    const last = await probe();
    if (last || (await Promise.race([stop, sleep(100)]))) return last;
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
  }
}
