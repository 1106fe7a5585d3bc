// Starts Chromium, and looks into pages of millrace. Everything that a test asserts about media comes from here.

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";
import { CHROMIUM_FLAGS, inbound, publish, until } from "../support/page.mjs";

export { inbound, publish, until };

const FLAGS = [
  ...CHROMIUM_FLAGS,
  "--disable-quic",
  "--no-first-run",
  "--disable-component-update",
  "--disable-sync",
  "--use-fake-device-for-media-stream",
  "--use-fake-ui-for-media-stream",
];

/** A fresh Chromium, with more flags if wanted; `close` ends it and removes its profile. */
export async function launch(...more) {
  const profile = await mkdtemp(join(tmpdir(), "millrace-chromium-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    args: [...FLAGS, ...more],
    permissions: ["camera", "microphone"],
    viewport: { width: 1280, height: 900 },
  });
  const close = async () => {
    await context.close();
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  };
  return { context, close };
}

/** Opens a page; what goes wrong in it is printed with the test's output. */
export async function open(context, url) {
  const page = await context.newPage();
  page.on("pageerror", (error) => console.error(`page: ${error.stack}`));
  page.on("console", (message) => {
    // A status such as 404 is an answer that the page expects while it waits for a stream, or shows why nobody is let in.
    const expected = /^(Failed to load resource|WebSocket connection to .* failed)/.test(message.text());
    if (message.type() === "error" && !expected) console.error(`page: ${message.text()}`);
  });
  await page.goto(url);
  return page;
}

/** Waits until the page's watcher has decoded a picture. */
export async function playing(page, seconds = 10) {
  await until("the page decodes video", seconds, async () => (await inbound(page, "video")).framesDecoded > 2);
}

/** Waits for a frame as wide as `accept` wants, and returns the statistics of then. */
export async function width(page, what, seconds, accept) {
  return until(`frame width ${what}`, seconds, async () => {
    const now = await inbound(page, "video");
    return accept(now.frameWidth) && now;
  });
}

/** The SRTP cipher of the page's watcher or publisher. */
export async function cipher(page, role) {
  return page.evaluate(async (role) => {
    const report = await window.millrace[role].pc.getStats();
    return [...report.values()].find((entry) => entry.type === "transport")?.srtpCipher ?? "";
  }, role);
}

/** What carries the watcher's media: "udp" or "tcp". More than one pair may be nominated, of which one is used. */
export async function transportProtocol(page) {
  return page.evaluate(async () => {
    const report = await window.millrace.watcher.pc.getStats();
    const transport = [...report.values()].find((entry) => entry.type === "transport");
    return report.get(report.get(transport.selectedCandidatePairId).remoteCandidateId).protocol;
  });
}

/** Frames that were decoded per second, over `seconds`. */
export async function frameRate(page, seconds) {
  const before = await inbound(page, "video");
  await sleep(1000 * seconds);
  const after = await inbound(page, "video");
  return ((after.framesDecoded - before.framesDecoded) * 1000) / (after.timestamp - before.timestamp);
}

/** Frames that the page's publisher has encoded. */
export async function framesEncoded(page) {
  return page.evaluate(async () => {
    const report = await window.millrace.publisher.pc.getStats();
    return [...report.values()].find((entry) => entry.type === "outbound-rtp" && entry.kind === "video").framesEncoded;
  });
}

/** Lets the page's publisher encode no more video, or go on with it. */
export async function pauseVideo(page, isPaused) {
  await page.evaluate(async (isPaused) => {
    const sender = window.millrace.publisher.pc.getSenders().find((sender) => sender.track?.kind === "video");
    const parameters = sender.getParameters();
    for (const encoding of parameters.encodings) encoding.active = !isPaused;
    await sender.setParameters(parameters);
  }, isPaused);
}

/** Turns the sound on, as a person would, and waits until it is heard and goes on: a muted element measures silence. */
export async function hears(page) {
  await page.locator("#sound[aria-pressed=false]").click();
  await until("sound is heard", 30, async () => (await inbound(page, "audio")).audioLevel > 0.01);
  const before = await inbound(page, "audio");
  const after = await until("50 more packets, and energy grows", 30, async () => {
    const now = await inbound(page, "audio");
    return now.packetsReceived >= before.packetsReceived + 50 && now.totalAudioEnergy > before.totalAudioEnergy && now;
  });
  // What waited in a queue comes at once; of what is sent twice there is twice as much.
  const packets = after.packetsReceived - before.packetsReceived;
  const seconds = (after.timestamp - before.timestamp) / 1000;
  assert.ok(packets < 75 * seconds + 50, `${packets} audio packets in ${seconds} s`);
}

/** Waits until the video element's picture moves: half a second apart, its pixels (0 to 255) differ by more than `least` each. */
export async function moves(page, least = 1) {
  await until("the picture moves", 30, async () => (await movement(page, 500)) > least);
}

/** Mean difference per pixel (0 to 255) between what the video element shows now and `ms` later. */
async function movement(page, ms) {
  return page.evaluate(async (ms) => {
    const video = document.getElementById("video");
    const canvas = new OffscreenCanvas(160, 90);
    const context = canvas.getContext("2d", { willReadFrequently: true });
    const grab = () => {
      context.drawImage(video, 0, 0, 160, 90);
      return context.getImageData(0, 0, 160, 90).data;
    };
    const before = grab();
    await new Promise((resolve) => setTimeout(resolve, ms));
    const after = grab();
    let sum = 0;
    for (let index = 0; index < before.length; index++) sum += Math.abs(before[index] - after[index]);
    return sum / before.length;
  }, ms);
}
