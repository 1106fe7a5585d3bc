// What the programs of all stacks have in common: how they report, and when they end.

export { until } from "../support/page.mjs";

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
