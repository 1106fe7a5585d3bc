// Pictures of the dashboard for docs/, of a server on which all kinds of things go on: `node shots.mjs [FOLDER]`, some seven minutes.
// No test: they are for people to look at.

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { launch, open, playing, until } from "./browser.mjs";
import { crowd } from "./crowd.mjs";
import { dashboard, freePort, go } from "./dashboard.mjs";
import { serve } from "./server.mjs";

const out = process.argv[2] ?? fileURLToPath(new URL("../../docs", import.meta.url));
/** So long a curve is to be. */
const SECONDS = Number(process.env.MILLRACE_SHOTS_SECONDS ?? 300);
const [WIDE, PHONE] = [1280, 390];

const folder = mkdtempSync(join(tmpdir(), "millrace-shots-"));
const faults = [];
const crowds = [];
process.setMaxListeners(30);
let server, browser;

try {
  for (const title of ["evening-news", "harbour-cam", "lecture-07", "slow-train"]) {
    const encode = ["-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=90", "-c:v", "mpeg2video", "-b:v", "300k", "-f", "mpegts"];
    execFileSync("ffmpeg", ["-v", "error", ...encode, "-muxrate", "400k", join(folder, `${title}.ts`)]);
  }
  const relay = `127.0.0.1:${await freePort()}`;
  const settings = [
    "workers.count=2",
    `pump.media=${folder}`,
    "pump.destinations=127.0.0.0/8",
    `relay.listen=${relay}`,
    'relay.users=["alice:open-sesame", "bob:open-sesame", "carol:open-sesame"]',
    "relay.allowed_peers=127.0.0.0/8",
    'reflect.streams=["concert", "radio"]',
  ];
  server = await serve("--demo", ...settings.flatMap((setting) => ["--set", setting]));
  await play(relay);
  browser = await launch();
  await playing(await open(browser.context, `${server.url}/?watch=demo`), 60);
  const page = await dashboard(browser.context, server.url, "#/machine", faults);
  await sleep(1000 * SECONDS);
  await take(page);
  if (faults.length > 0) throw new Error(faults.join("\n"));
} finally {
  await browser?.close();
  for (const each of crowds) await each.stop();
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
}

/** Who comes, stays and goes. */
async function play(relay) {
  const load = async (...words) => crowds.push(await crowd(server.url, ...words));
  const many = String(100 * SECONDS);
  const rooms = ["rooms", "--sample", "0", "--fps", "15", "--bitrate", "120k"];
  await Promise.all([
    load(...rooms, "--simulcast", "--name", "stage", "--publishers", "5", "--subscribers", "140", "--joiners", many, "--join-rate", "2", "--stay", "45"),
    load(...rooms, "--livekit", "--api-key", "devkey", "--api-secret", "secret", "--publishers", "4", "--subscribers", "12"),
    load("relay", "--server", relay, "--user", "alice", "--password", "open-sesame", "--clients", "60", "--rate", "20"),
    load("relay", "--server", relay, "--user", "bob", "--password", "open-sesame", "--clients", "25", "--rate", "10"),
    load("reflect", "--stream", "/live/concert", "--push", "/live/concert", "--rate", "300k", "--viewers", "90", "--churn", "3", "--stay", "20"),
    ...["evening-news", "harbour-cam", "slow-train"].map((title, index) =>
      load("pump", "--title", `${title}.ts`, "--loop", "--sessions", String(40 - 10 * index), "--sample", "0", "--newcomers-per-second", "0.5"),
    ),
  ]);
}

async function take(page) {
  for (const name of ["machine", "streams", "sessions", "rooms", "pump", "relay", "reflect", "health"]) {
    await see(page, name);
    await shot(page, name);
  }
  await lead(page, "sessions?stream=stage-0", "PageDown");
  await shot(page, "session");
  await lead(page, "rooms");
  await shot(page, "room");
  await page.locator(".body").first().focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await until("how it does", 30, () => page.locator(".facts").count());
  await shot(page, "participant");
  await lead(page, "pump");
  await shot(page, "played");
  await lead(page, "reflect");
  await shot(page, "viewers");
  await enter(page);
  await shot(page, "viewer");
  await see(page, "reflect/viewer/ended");
  await shot(page, "gone");
  await lead(page, "relay");
  await shot(page, "allocation");
  await see(page, "sessions/ended");
  await shot(page, "ended");
  await see(page, "relay");
  await page.locator(".body").first().focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Delete");
  await shot(page, "question");
  await page.keyboard.press("Escape");

  await page.emulateMedia({ colorScheme: "dark" });
  for (const name of ["machine", "relay"]) {
    await see(page, name);
    await shot(page, `${name}-dark`);
  }
  for (const [name, colorScheme] of [["machine", "dark"], ["sessions", "light"], ["pump", "light"], ["health", "light"]]) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width: PHONE, height: 844 });
    await see(page, name);
    await shot(page, `${name}-phone`, PHONE, 844);
  }
  await page.setViewportSize({ width: WIDE, height: 560 });
  await page.emulateMedia({ colorScheme: "light" });
  await page.route("**/api/admin", (route) => route.fulfill({ status: 401, contentType: "application/problem+json", body: "{}" }));
  await page.goto(`${server.url}/admin`);
  await page.reload();
  await page.getByLabel("Admin token").waitFor();
  await shot(page, "sign-in", WIDE, 560);
  faults.splice(0, faults.length, ...faults.filter((fault) => !fault.includes("401")));
}

/** A view with all that it loads. */
async function see(page, hash) {
  await go(page, hash);
  await until(`what ${hash} lists`, 60, async () => !/Loading|Looking/.test(await page.locator("main").innerText()));
}

/** What the first row of a view's first list leads to, or the one to which that key goes. */
async function lead(page, hash, key = "ArrowDown") {
  await see(page, hash);
  await enter(page, key);
}

/** What a row of the first list leads to. */
async function enter(page, key = "ArrowDown") {
  const from = page.url();
  await page.locator(".body").first().focus();
  await page.keyboard.press(key);
  await page.keyboard.press("Enter");
  await until("another view", 30, () => page.url() !== from);
  await until("what it shows", 30, () => page.locator(".facts, .body .row").count());
}

/** As high as what is seen, in few colours. */
async function shot(page, name, width = WIDE, height) {
  await page.setViewportSize({ width, height: height ?? 500 });
  const all = await page.evaluate(() => document.querySelector("main").scrollHeight + document.querySelector("header").offsetHeight);
  await page.setViewportSize({ width, height: height ?? Math.min(Math.max(all, 500), 1400) });
  // The next sample is drawn at this size.
  const at = await page.evaluate(() => window.admin.samples.last?.at ?? 0);
  if (at > 0) await until("a sample", 30, () => page.evaluate((at) => window.admin.samples.last?.at !== at, at));
  const [taken, made] = [join(folder, `${name}.png`), join(out, `dashboard-${name}.png`)];
  await page.screenshot({ path: taken, animations: "disabled" });
  const palette = "split[a][b];[a]palettegen=max_colors=96:reserve_transparent=0[p];[b][p]paletteuse=dither=none";
  execFileSync("ffmpeg", ["-v", "error", "-y", "-i", taken, "-vf", palette, "-compression_level", "100", "-pred", "mixed", made]);
}
