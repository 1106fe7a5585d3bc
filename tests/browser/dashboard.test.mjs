// The operator's dashboard at /admin, of a server on which something goes on.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, open, playing, until } from "./browser.mjs";
import { cuts, dashboard, figure as figureIn, freePort, go, live, metric as metricOf, number as numberIn } from "./dashboard.mjs";
import { serve } from "./server.mjs";
import { allocate } from "./turn.mjs";

const [VIEWERS, PLAYED, ALLOCATIONS] = [2, 3, 4];

const folder = mkdtempSync(join(tmpdir(), "millrace-titles-"));
const faults = [];
const clients = [];
let server, browser, page, relayPort;

before(async () => {
  const encode = ["-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=20", "-c:v", "mpeg2video", "-b:v", "600k", "-f", "mpegts"];
  execFileSync("ffmpeg", ["-v", "error", ...encode, "-muxrate", "800k", join(folder, "title.ts")]);
  relayPort = await freePort();
  const settings = [
    "workers.count=2",
    `pump.media=${folder}`,
    "pump.destinations=127.0.0.0/8",
    `relay.listen=127.0.0.1:${relayPort}`,
    "relay.users=alice:open-sesame",
  ];
  server = await serve("--demo", ...settings.flatMap((setting) => ["--set", setting]));
  for (let index = 0; index < ALLOCATIONS; index++) clients.push(await allocate(relayPort, "alice", "open-sesame"));
  for (let index = 0; index < PLAYED; index++) {
    // Where nobody listens a session would end.
    const receiver = createSocket("udp4").bind(0, "127.0.0.1");
    await once(receiver, "listening");
    clients.push(receiver);
    const body = JSON.stringify({ title: "title.ts", destination: `udp://127.0.0.1:${receiver.address().port}`, loop: true });
    const init = { method: "POST", headers: { "content-type": "application/json" }, body };
    const response = await fetch(`${server.url}/pump/sessions`, init);
    assert.equal(response.status, 201, await response.text());
  }
  browser = await launch();
  for (let index = 0; index < VIEWERS; index++) await playing(await open(browser.context, `${server.url}/?watch=demo`), 60);
  page = await dashboard(browser.context, server.url, "#/machine", faults);
});

after(async () => {
  for (const client of clients) client.close();
  await browser?.close();
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const number = (name) => numberIn(page, name);
const figure = (label) => figureIn(page, label);
const metric = (name, labels) => metricOf(server.url, name, labels);
const view = (name) => go(page, name);

test("it shows who is here, as /metrics counts them", async () => {
  const expected = [
    ["pump_playing", PLAYED, () => metric("pump_worker_playing")],
    ["relay_allocations", ALLOCATIONS, () => metric("relay_allocations")],
    ["viewers", VIEWERS, () => metric("sessions", 'role="viewer",state="connected"')],
  ];
  for (const [name, count, counted] of expected) {
    await until(`${count} ${name}`, 30, async () => (await number(name)) === count);
    assert.equal(await counted(), count, name);
  }
  await view("relay");
  await until("the figure", 30, async () => (await figure("Allocations")) === String(ALLOCATIONS));
  await until("a row for each", 30, async () => (await page.locator(".body .row").count()) === ALLOCATIONS + 1);
  await view("pump");
  await until("the figure", 30, async () => (await figure("Playing")) === String(PLAYED));
  await view("streams");
  await until("the figure", 30, async () => (await figure("Viewers")) === String(VIEWERS));
});

test("counters of a sample lie between those of /metrics before and after it", async () => {
  const names = ["rooms_packets_out_total", "pump_datagrams_total", "relay_allocations_begun_total"];
  const before = await Promise.all(names.map((name) => metric(name)));
  const at = await page.evaluate(() => window.admin.samples.last.at);
  // The first may have been on its way already.
  await until("two more samples", 30, () => page.evaluate((at) => window.admin.samples.all.filter((sample) => sample.at > at).length > 1, at));
  const shown = await Promise.all(names.map(number));
  const after = await Promise.all(names.map((name) => metric(name)));
  names.forEach((name, index) => {
    assert.ok(before[index] <= shown[index] && shown[index] <= after[index], `${name}: ${before[index]} ${shown[index]} ${after[index]}`);
  });
});

test("it goes on by itself, and after the connection was lost", async () => {
  await view("machine");
  await until("a cost for each packet", 30, async () => /s$/.test(await figure("CPU per packet")));
  const at = () => page.evaluate(() => window.admin.samples.last.at);
  const first = await at();
  await until("the next sample", 30, async () => (await at()) > first);
  await page.context().setOffline(true);
  await page.evaluate(() => dispatchEvent(new Event("hashchange")));
  await page.context().setOffline(false);
  const then = await at();
  await until("it is live", 30, async () => (await at()) > then);
  const times = await page.evaluate(() => window.admin.samples.times);
  assert.ok(times.every((time, index) => index === 0 || time > times[index - 1]), "each moment once");
});

test("from a stream to its sessions, to one of them, and back, by keyboard alone", async () => {
  await view("streams");
  await until("the demo's row", 30, () => page.locator(".body .row").count());
  await page.locator(".body").focus();
  await page.keyboard.press("ArrowDown");
  assert.equal(await page.locator('.row[aria-selected="true"] .cell').first().innerText(), "demo");
  await page.keyboard.press("Enter");
  await until("its sessions", 30, async () => (await page.locator(".body .row").count()) === VIEWERS + 1);
  assert.match(page.url(), /#\/sessions\?stream=demo$/);
  await page.locator(".body").focus();
  await page.keyboard.press("End");
  await page.keyboard.press("Enter");
  await until("how it does", 30, async () => (await page.locator(".facts").count()) === 2);
  await page.goBack();
  await until("the list again", 30, async () => (await page.locator(".body .row").count()) === VIEWERS + 1);
});

test("an allocation is ended when that was confirmed, and not before", async () => {
  await view("relay");
  await until("its row", 30, async () => (await page.locator(".body .row").count()) === ALLOCATIONS + 1);
  const body = page.locator(".body").first();
  await body.focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Delete");
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  assert.match(await dialog.innerText(), /End allocation \d+ of alice/);
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Cancel");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
  assert.equal(await metric("relay_allocations"), ALLOCATIONS);
  await body.focus();
  await page.keyboard.press("Delete");
  await dialog.waitFor();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await until("one less", 30, async () => (await metric("relay_allocations")) === ALLOCATIONS - 1);
  await until("the page says so", 30, async () => (await number("relay_allocations")) === ALLOCATIONS - 1);
});

test("the log filter is changed, and a wrong one is refused in the dialog", async () => {
  await view("machine");
  const set = async (text) => {
    await page.fill("#log-filter", text);
    await page.locator(".actions form button").click();
    await page.locator("dialog .primary").click();
  };
  await set("no=such=thing");
  await until("why not", 30, async () => (await page.locator("dialog .error").innerText()).includes("no=such=thing"));
  await page.keyboard.press("Escape");
  // The browser says that an answer was an error, which it was.
  faults.splice(0, faults.length, ...faults.filter((fault) => !fault.includes("422")));
  await set("error,server=info");
  await until("it is another one", 30, async () => {
    const about = await (await fetch(`${server.url}/api/admin`)).json();
    return about.log_filter === "error,server=info";
  });
});

test("the host is looked at", async () => {
  await view("health");
  await until("findings", 60, () => page.locator(".findings li").count());
  assert.equal(await page.locator(".findings b", { hasText: "ports" }).count(), 0, "its own ports are no finding");
});

test("ten thousand sessions are searched some at a time, and of each only what is seen is there", async (context) => {
  const COUNT = 10_000;
  const rows = Array.from({ length: COUNT }, (_, index) => ({
    id: String(index + 1),
    stream: `stream-${index % 100}`,
    role: index % 50 === 0 ? "publisher" : "viewer",
    connected: true,
    since: 1_700_000_000 + index,
    worker: index % 8,
    address: `10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`,
    subject: null,
    ends: null,
  }));
  const many = await browser.context.newPage();
  await many.route("**/api/sessions*", (route) => {
    const after = Number(new URL(route.request().url()).searchParams.get("after") ?? 0);
    const part = rows.slice(after, after + 1000);
    const link = after + 1000 < COUNT ? { link: `<sessions?after=${after + 1000}&limit=1000>; rel="next"` } : {};
    return route.fulfill({ headers: { "content-type": "application/json", ...link }, body: JSON.stringify(part) });
  });
  await many.goto(`${server.url}/admin#/sessions`);
  await until("all rows", 60, async () => (await many.locator(".count").innerText()) === "10,000");
  const seen = () => many.locator(".body .row").count();
  assert.ok((await seen()) < 40, `${await seen()} elements`);
  const search = many.getByLabel("Search Sessions");
  await search.fill("stream-7");
  await until("what is found", 30, async () => (await many.locator(".count").innerText()) === "1,100 of 10,000");
  const work = () => many.evaluate(() => window.admin.view.lists[0].rows.work);
  assert.deepEqual((await work()).search, { frames: 5, most: 2000 });
  // Who types on looks at what was found, and no more.
  await search.pressSequentially("7");
  await until("less of it", 30, async () => (await many.locator(".count").innerText()) === "100 of 10,000");
  assert.deepEqual((await work()).search, { frames: 1, most: 1100 });
  assert.match(many.url(), /q=stream-77/);
  await search.fill("");
  await until("all rows", 30, async () => (await many.locator(".count").innerText()) === "10,000");
  await many.locator(".body").focus();
  await many.keyboard.press("End");
  await until("the last row", 30, () => many.locator('.row[aria-rowindex="10001"][aria-selected="true"]').count());
  assert.ok((await seen()) < 40);
  await many.getByRole("columnheader", { name: "Id" }).getByRole("button").click();
  const first = many.locator('.row[aria-rowindex="2"] .cell').first();
  await until("the other way round", 30, async () => (await first.innerText()) === String(COUNT));
  await many.evaluate(() => {
    window.touched = 0;
    const count = ({ addedNodes, removedNodes }) => (window.touched += addedNodes.length + removedNodes.length);
    new MutationObserver((changes) => changes.forEach(count)).observe(document.querySelector(".space"), { childList: true });
  });
  await many.getByRole("columnheader", { name: "Stream" }).getByRole("button").click();
  const inOrder = JSON.stringify(Array.from({ length: 100 }, (_, index) => `stream-${index}`));
  const streams = () => many.evaluate(() => [...new Set(window.admin.view.lists[0].rows.shown.map(({ row }) => row.stream))]);
  await until("by the numbers in names", 30, async () => JSON.stringify(await streams()) === inOrder);
  assert.deepEqual((await work()).order, { frames: 5, most: 2000 });
  const touched = await many.evaluate(() => window.touched);
  assert.ok(touched > 0 && touched < 80, `${touched} elements came and went`);
  // How long the busiest frame of it takes differs by machine: it is told, and no condition.
  const longest = (name) => many.getByRole("columnheader", { name }).getByRole("button").evaluate(async (button) => {
    const { rows } = window.admin.view.lists[0];
    const [before, tasks] = [rows.shown, []];
    const timed = (act) => {
      const begin = performance.now();
      act();
      tasks.push(performance.now() - begin);
    };
    const frame = window.requestAnimationFrame;
    window.requestAnimationFrame = (act) => frame(() => timed(act));
    timed(() => button.click());
    while (rows.shown === before) await new Promise((resolve) => frame(resolve));
    window.requestAnimationFrame = frame;
    return Math.max(...tasks);
  });
  for (const name of ["Id", "Stream", "Address"]) context.diagnostic(`sorting ${COUNT} rows by ${name}: ${(await longest(name)).toFixed(1)} ms in the busiest frame`);
  await many.close();
});

test("all views fit a phone, and are dark where that is wanted", async () => {
  const views = ["machine", "streams", "sessions", "rooms", "pump", "relay", "reflect", "health"];
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const grounds = [];
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    grounds.push(await ground());
    for (const [width, height] of [[1280, 900], [390, 844], [360, 740]]) {
      await page.setViewportSize({ width, height });
      for (const name of views) {
        await view(name);
        assert.deepEqual(await cuts(page), { cut: [], page: 0, main: 0 }, `${name} at ${width}`);
      }
    }
  }
  assert.notEqual(grounds[0], grounds[1]);
  await page.setViewportSize({ width: 1280, height: 900 });
});

test("nothing moves when a sample comes", async () => {
  await view("machine");
  const places = () => page.evaluate(() => [...document.querySelectorAll(".plot, .figures > div")].map((each) => JSON.stringify(each.getBoundingClientRect())));
  const first = await places();
  const at = await page.evaluate(() => window.admin.samples.last.at);
  await until("the next sample", 30, () => page.evaluate((at) => window.admin.samples.last.at > at, at));
  assert.deepEqual(await places(), first);
});

test("where a token is needed it is a header, kept for the tab alone", async () => {
  const guarded = await browser.context.newPage();
  const asked = [];
  guarded.on("request", (request) => asked.push({ url: request.url(), headers: request.headers() }));
  await guarded.route("**/api/admin**", (route) =>
    route.request().headers()["authorization"] === "Bearer let-me-in"
      ? route.continue({ headers: { ...route.request().headers(), authorization: "" } })
      : route.fulfill({ status: 401, contentType: "application/problem+json", body: '{"detail":"it is not that one"}' }),
  );
  await guarded.goto(`${server.url}/admin`);
  await guarded.getByLabel("Admin token").fill("wrong");
  await guarded.keyboard.press("Enter");
  await until("why not", 30, async () => (await guarded.locator("#problem").innerText()) === "it is not that one");
  await guarded.getByLabel("Admin token").fill("let-me-in");
  await guarded.keyboard.press("Enter");
  await live(guarded);
  const events = asked.filter((request) => request.url.endsWith("/api/admin/events"));
  assert.equal(events[0].headers["authorization"], "Bearer let-me-in");
  assert.ok(asked.every((request) => !request.url.includes("let-me-in")));
  assert.deepEqual(await guarded.evaluate(() => [localStorage.length, sessionStorage.length]), [0, 1]);
  await guarded.getByRole("button", { name: "Sign out" }).click();
  assert.equal(await guarded.evaluate(() => sessionStorage.length), 0);
  await guarded.close();
});

test("a drain lets nobody in any more, and the page says so", async () => {
  await view("machine");
  await page.locator("#drain").click();
  await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
  await until("the badge", 30, () => page.locator("#draining").isVisible());
  await until("a sample that has it", 30, async () => (await number("draining")) === 1);
  assert.equal((await fetch(`${server.url}/healthz`)).status, 503);
});

test("no rule of the page's policy was broken, and nothing was complained of", () => {
  assert.deepEqual(faults, []);
});
