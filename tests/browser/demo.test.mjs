// What a newcomer meets: `millrace serve --demo`, and the page at its root.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { cipher, frameRate, hears, inbound, launch, moves, open, playing, until } from "./browser.mjs";
import { allFlow, meet, tile } from "./meeting.mjs";
import { serve } from "./server.mjs";

let server, browser, page, openedAt;

before(async () => {
  server = await serve("--demo");
  browser = await launch();
  openedAt = Date.now();
  page = await open(browser.context, `${server.url}/`);
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

test("the demo plays by itself", async () => {
  await until("a picture", 30, () => page.evaluate(() => document.getElementById("video").videoWidth === 640));
  await playing(page, 30);
  const seconds = (Date.now() - openedAt) / 1000;
  console.log(`first picture after ${seconds.toFixed(2)} s`);
});

test("the demo's picture moves, at 30 frames a second", async () => {
  await moves(page);
  await until("30 frames a second, within a fifth", 60, async () => Math.abs((await frameRate(page, 3)) - 30) < 6);
});

test("the demo's sound is heard", () => hears(page));

// The clip has 300 frames. How smooth it is is not looked at: a browser without a core stutters by itself.
test("the demo goes on through the loop's seam, and no packet is missing", async () => {
  const first = await inbound(page, "video");
  const more = 330;
  const second = await until(`${more} more frames`, 60, async () => {
    const now = await inbound(page, "video");
    return now.framesDecoded >= first.framesDecoded + more && now;
  });
  assert.equal(second.packetsLost, 0);
});

test("media is encrypted with AES-GCM", async () => {
  assert.match(await cipher(page, "watcher"), /GCM/);
});

test("the page shows what arrives", async () => {
  const shown = await page.locator("#stats").innerText();
  for (const text of ["640 × 360", "VP8", "opus", "GCM"]) assert.ok(shown.includes(text), `${text} in: ${shown}`);
  assert.equal(await page.locator("#state").innerText(), "live");
});

test("the keyboard reaches the streams and the form, and starts a stream", async () => {
  await page.locator("#streams button").first().focus();
  await page.keyboard.press("Enter");
  await playing(page, 30);
  const visited = new Set();
  for (let step = 0; step < 15; step++) {
    await page.keyboard.press("Tab");
    visited.add(await page.evaluate(() => document.activeElement?.id ?? ""));
  }
  for (const id of ["open-name", "name", "source", "simulcast", "publish-start"]) assert.ok(visited.has(id), id);
});

test("the demo goes out by HTTP as well: the page plays it as HLS, and it goes on through the loop's seam", async () => {
  await page.locator("#reflected button").first().click();
  const from = Date.now();
  await until("a picture", 30, () => page.evaluate(() => document.getElementById("video").videoWidth === 640));
  console.log(`HLS: first picture after ${((Date.now() - from) / 1000).toFixed(2)} s`);
  await until("it is live", 30, () => page.evaluate(() => window.millrace.player?.state.kind === "live"));
  const at = () => page.evaluate(() => document.getElementById("video").currentTime);
  const time = await at();
  await until("twelve seconds more are played", 60, async () => (await at()) >= time + 12);
  await moves(page);
  assert.equal(await page.evaluate(() => window.millrace.player.starts), 1);
  const head = await fetch(`${server.url}/live/demo`, { method: "HEAD" });
  assert.equal(head.headers.get("content-type"), "video/mp2t");
});

test("who comes into the demo's room is not alone: the clip is there, seen and heard", async () => {
  const page = await meet(browser, server, "demo", "Newcomer");
  const clip = tile(page, "the demo's clip");
  await until("its picture", 30, async () => (await clip.count()) === 1 && (await clip.locator("video").evaluate((video) => video.videoWidth === 640)));
  await allFlow(page, ["the demo's clip/camera", "the demo's clip/microphone"], 30);
  await page.close();
});

test("the page loads nothing from elsewhere", async () => {
  const hosts = await page.evaluate(() => performance.getEntriesByType("resource").map((entry) => new URL(entry.name).host));
  assert.deepEqual([...new Set(hosts)], [new URL(server.url).host]);
});
