// What tests of pages have in common, whatever drives the browser: of it only `evaluate` is used.

import { setTimeout as sleep } from "node:timers/promises";

/** What Chromium needs for media between pages of one machine that nobody looks at. */
export const CHROMIUM_FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-background-networking",
  "--autoplay-policy=no-user-gesture-required",
  // Host candidates as they are: there is no mDNS here, and the server is on loopback.
  "--disable-features=WebRtcHideLocalIpsWithMdns",
  "--allow-loopback-in-peer-connection",
];

/** Calls `probe` until it returns something true, and returns that; `stop` ends the wait sooner. */
export async function until(what, seconds, probe, stop = new Promise(() => {})) {
  const end = Date.now() + 1000 * seconds;
  for (;;) {
    const last = await probe();
    if (last || (await Promise.race([stop, sleep(100)]))) return last;
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
  }
}

/** Publishes the page's test picture, with three layers where `simulcast` is set. */
export async function publish(page, options) {
  await page.evaluate((options) => window.millrace.publish(options).then(() => undefined), options);
  const state = () => page.evaluate(() => window.millrace.publisher.pc?.connectionState);
  await until("the publisher is connected", 15, async () => (await state()) === "connected");
}

/** The watcher's inbound-rtp statistics of one kind; zeros while there are none. */
export async function inbound(page, kind) {
  return page.evaluate(async (kind) => {
    const video = { framesDecoded: 0, frameWidth: 0, freezeCount: 0, totalFreezesDuration: 0 };
    const none = { ...video, packetsReceived: 0, packetsLost: 0, totalAudioEnergy: 0, audioLevel: 0 };
    const report = await window.millrace?.watcher?.pc?.getStats();
    const entries = [...(report?.values() ?? [])];
    return { ...none, ...entries.find((entry) => entry.type === "inbound-rtp" && entry.kind === kind) };
  }, kind);
}
