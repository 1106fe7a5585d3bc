// Reflected streams on the page: HLS by hls.js, fragmented MP4 and WebM as the browser's own element plays them. ffmpeg
// pushes them in real time.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, test } from "node:test";
import { launch, moves, open, until } from "./browser.mjs";
import { serve } from "./server.mjs";

const LOW = "hls=true hls_segment=2s hls_part=500ms";
const STREAMS = ["ts hls=true hls_segment=1s", `low ${LOW}`, `low-ts ${LOW}`, "mp4", "webm", "flv"];
const H264 = ["-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-c:a", "aac"];
const VP8 = ["-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-c:a", "libopus"];
const MUXERS = {
  ts: [...H264, "-f", "mpegts"],
  low: [...H264, "-f", "mp4", "-movflags", "empty_moov+default_base_moof", "-frag_duration", "250000"],
  "low-ts": [...H264, "-f", "mpegts"],
  mp4: [...H264, "-f", "mp4", "-movflags", "frag_keyframe+empty_moov+default_base_moof"],
  webm: [...VP8, "-f", "webm", "-live", "1"],
  flv: [...H264, "-f", "flv"],
};

let server, browser;
const pushing = [];

before(async () => {
  server = await serve("--set", `reflect.streams=${JSON.stringify(STREAMS)}`);
  for (const name of Object.keys(MUXERS)) pushing.push(push(name));
  browser = await launch();
});

after(async () => {
  await browser?.close();
  for (const child of pushing) child.kill("SIGKILL");
  await server?.stop();
});

/** A key frame each second. */
function push(name) {
  const source = ["-re", "-f", "lavfi", "-i", "testsrc2=size=320x240:rate=24", "-re", "-f", "lavfi", "-i", "sine=440"];
  const picture = ["-g", "24", "-b:v", "600k", "-pix_fmt", "yuv420p"];
  const to = ["-method", "PUT", `${server.url}/live/${name}`];
  const args = ["-nostdin", "-loglevel", "error", ...source, ...picture, ...MUXERS[name], ...to];
  return spawn("ffmpeg", args, { stdio: ["ignore", "inherit", "inherit"] });
}

async function shown(name) {
  const list = await (await fetch(`${server.url}/api/reflect/streams`)).json();
  return list.find((stream) => stream.name === name);
}

/** Opens the page with a stream that has been there for a while; returns it when there is a picture. */
async function play(name) {
  await until(`${name} is pushed`, 30, async () => (await shown(name))?.received_bytes > 300_000);
  const from = Date.now();
  const page = await open(browser.context, `${server.url}/?play=${name}`);
  await page.waitForFunction(() => document.getElementById("video").readyState >= 2, null, { timeout: 20_000 });
  console.log(`${name}: first picture ${Date.now() - from} ms after the page was opened`);
  assert.equal(await page.evaluate(() => document.getElementById("video").videoWidth), 320);
  return page;
}

async function state(page) {
  return page.evaluate(() => window.millrace.player?.state.kind);
}

async function buffered(page) {
  return page.evaluate(() => window.millrace.player?.playing?.buffered ?? 0);
}

for (const [name, source] of [["ts", "hls"], ["low", "hls"], ["low-ts", "hls"], ["mp4", "element"], ["webm", "element"]]) {
  test(`${name} plays, by ${source === "hls" ? "hls.js" : "the browser itself"}`, async () => {
    const page = await play(name);
    await until("it is live", 30, async () => (await state(page)) === "live");
    await moves(page);
    const src = await page.evaluate(() => document.getElementById("video").currentSrc);
    assert.equal(src.startsWith("blob:"), source === "hls", src);
    await until("it has something to play", 30, async () => (await buffered(page)) > 0);
    assert.equal(await page.evaluate(() => window.millrace.player.starts), 1);
    await until("its size is shown", 30, async () => (await page.locator("#stats").innerText()).includes("320 × 240"));
    await page.close();
  });
}

// Within a second on a machine that does nothing else; how soon it was here is printed.
test("by HLS there is a picture each time that the page is opened", async () => {
  for (let start = 0; start < 5; start++) await (await play("ts")).close();
});

test("of a transport stream with parts each picture is decoded", async () => {
  for (let start = 0; start < 20; start++) {
    const page = await play("low-ts");
    await moves(page);
    const isWhole = () => window.millrace.player.starts === 1 && !document.getElementById("video").error;
    assert.ok(await page.evaluate(isWhole), `start ${start}`);
    await page.close();
  }
});

test("a stream that no browser plays is named with its address", async () => {
  await until("flv is pushed", 30, async () => (await shown("flv"))?.content_type);
  const page = await open(browser.context, `${server.url}/?play=flv`);
  await until("its address", 30, async () => (await page.locator("#overlay").innerText()).includes("/live/flv"));
  await page.close();
});

test("the page lists reflected streams, and plays another one when it is chosen", async () => {
  const page = await open(browser.context, `${server.url}/`);
  await until("the list", 30, async () => (await page.locator("#reflected button").count()) === STREAMS.length);
  assert.match(await page.locator("#reflected").innerText(), /ts\s*live · \d+ viewers? · .*video\/mp2t, HLS/);
  for (const name of ["webm", "ts"]) {
    await page.locator("#reflected button").filter({ hasText: new RegExp(`^${name}`) }).click();
    await until(`${name} is live`, 30, async () => (await state(page)) === "live");
    assert.equal(await page.locator("#watching").innerText(), name);
  }
  await page.locator("#stop").click();
  assert.equal(await page.locator("#overlay").innerText(), "Stopped");
  await page.close();
});

test("a source that goes and comes again is awaited", async () => {
  const page = await play("ts");
  const child = pushing.shift();
  child.kill("SIGKILL");
  await until("it waits", 40, async () => (await state(page)) === "waiting");
  pushing.push(push("ts"));
  await until("it is live again", 40, async () => (await state(page)) === "live");
  await moves(page);
  await page.close();
});
