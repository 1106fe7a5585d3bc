// The dashboard of a server that has much to do: 2,000 viewers, 500 sessions of the pump and 1,000 allocations of the relay, all at
// once. Their media is as little as can be: what is looked at is that numbers are right and lists whole.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, until } from "./browser.mjs";
import { crowd } from "./crowd.mjs";
import { cuts, dashboard, figure, freePort, go, list, metric, number } from "./dashboard.mjs";
import { serve } from "./server.mjs";

const [VIEWERS, PLAYED, ALLOCATIONS] = [2000, 500, 1000];
/** What the pump's list is called. */
const PUMPED = "Sessions, and those that ended lately";
const VIEWS = ["machine", "streams", "sessions", "rooms", "pump", "relay", "reflect", "health"];
/** What a page may take of the browser's memory, with an hour of samples. */
const MEMORY_MAX = 50e6;
/** Elements of a table are made of so many rows at a time: those that are seen, and some above and below. */
const ROWS_MAX = 40;
/** Elements that may be there now and not then, such as a row of what was dropped. A view has more. */
const FEW = 40;
/** How long a condition may take that takes a second or two on a machine that has nothing else to do. */
const LONG = 120;

const folder = mkdtempSync(join(tmpdir(), "millrace-titles-"));
const faults = [];
let server, browser, page;
let crowds = [];

before(async () => {
  const encode = ["-f", "lavfi", "-i", "testsrc2=s=64x36:r=5:d=20", "-c:v", "mpeg2video", "-b:v", "30k", "-f", "mpegts"];
  execFileSync("ffmpeg", ["-v", "error", ...encode, "-muxrate", "64k", join(folder, "title.ts")]);
  const relay = `127.0.0.1:${await freePort()}`;
  const settings = [
    "workers.count=2",
    `pump.media=${folder}`,
    "pump.destinations=127.0.0.0/8",
    `relay.listen=${relay}`,
    "relay.users=alice:open-sesame",
    "relay.allowed_peers=127.0.0.0/8",
    'reflect.streams=["news"]',
  ];
  server = await serve("--dev", ...settings.flatMap((setting) => ["--set", setting]));
  const little = ["--bitrate", "1k", "--fps", "1", "--sample", "0"];
  crowds = await Promise.all([
    crowd(server.url, "rooms", "--subscribers", String(VIEWERS), "--join-rate", "400", ...little),
    crowd(server.url, "pump", "--title", "title.ts", "--loop", "--sessions", String(PLAYED), "--sample", "0"),
    crowd(server.url, "relay", "--server", relay, "--user", "alice", "--password", "open-sesame", "--clients", String(ALLOCATIONS), "--rate", "0.1"),
  ]);
  // Memory is measured when it is asked for, which the page has to be isolated for: else it would be that of others, too.
  browser = await launch("--enable-blink-features=ForceEagerMeasureMemory");
  await browser.context.route(`${server.url}/admin`, async (route) => {
    const response = await route.fetch();
    const isolated = { "cross-origin-opener-policy": "same-origin", "cross-origin-embedder-policy": "require-corp" };
    await route.fulfill({ response, headers: { ...response.headers(), ...isolated } });
  });
  page = await dashboard(browser.context, server.url, "#/machine", faults);
});

after(async () => {
  await browser?.close();
  for (const each of crowds) await each.stop();
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** What the table of that name says of how many rows it has. */
const rows = (name) => page.locator(`section.table:has([aria-label="${name}"][role="grid"]) .count`).innerText();

/** Ids of all rows of the view's first table. */
const ids = () => page.evaluate(() => window.admin.view.lists[0].rows.shown.map((row) => row.id));

const sorted = (texts) => [...texts].sort((one, other) => Number(one) - Number(other));

test("page, /metrics and API say the same of all who are here", async () => {
  const expected = [
    ["viewers", VIEWERS, () => metric(server.url, "sessions", 'role="viewer",state="connected"')],
    ["pump_playing", PLAYED, () => metric(server.url, "pump_worker_playing")],
    ["relay_allocations", ALLOCATIONS, () => metric(server.url, "relay_allocations")],
  ];
  for (const [name, count, counted] of expected) {
    await until(`${count} ${name}`, LONG, async () => (await number(page, name)) === count);
    assert.equal(await counted(), count, name);
  }
  // The publisher is one of the sessions.
  const views = [
    ["streams", "Viewers", "2,000", [["Streams", "1"]]],
    ["sessions", undefined, undefined, [["Sessions", "2,001"]]],
    ["pump", "Playing", "500", [[PUMPED, "500"], ["Titles", "1"]]],
    ["relay", "Allocations", "1,000", [["Allocations", "1,000"], ["Users", "1"]]],
  ];
  for (const [name, label, value, tables] of views) {
    await go(page, name);
    if (label) await until(`${label}: ${value}`, LONG, async () => (await figure(page, label)) === value);
    for (const [table, count] of tables) await until(`${count} ${table}`, LONG, async () => (await rows(table)) === count);
  }
  const lists = { sessions: "/api/sessions", pump: "/pump/sessions?after=0", relay: "/api/relay/allocations" };
  for (const [name, path] of Object.entries(lists)) {
    await go(page, name);
    const there = sorted((await list(server.url, path)).map(({ id }) => String(id)));
    await until(`each of ${name}`, LONG, async () => JSON.stringify(sorted(await ids())) === JSON.stringify(there));
  }
});

test("workers have them all between them, and each leads to its own", async () => {
  await go(page, "machine");
  const cells = () => page.locator("section.small table").first().locator("tbody tr").evaluateAll((rows) =>
    rows.map((row) => [...row.cells].slice(4, 7).map((cell) => Number(cell.textContent.replaceAll(",", "")))),
  );
  const sum = (lines) => lines.reduce((sum, line) => sum.map((value, index) => value + line[index]), [0, 0, 0]);
  await until("all", LONG, async () => JSON.stringify(sum(await cells())) === JSON.stringify([VIEWERS + 1, PLAYED, ALLOCATIONS]));
  const lines = await cells();
  for (const [worker, counts] of lines.entries()) {
    for (const [name, table, count] of [["sessions", "Sessions", counts[0]], ["pump", PUMPED, counts[1]], ["relay", "Allocations", counts[2]]]) {
      await go(page, `${name}?worker=${worker}`);
      await until(`${name} of worker ${worker}`, LONG, async () => (await rows(table)) === count.toLocaleString("en"));
    }
  }
});

test("each second's sample is drawn as the server made it", async () => {
  await go(page, "streams");
  await page.evaluate(() => {
    const { view, samples } = window.admin;
    const draw = view.draw.bind(view);
    window.drawn = [];
    view.draw = (given) => {
      draw(given);
      const tile = [...document.querySelectorAll(".figures > div")].find((tile) => tile.firstChild.textContent === "Packets out");
      window.drawn.push([samples.last.at, tile.lastChild.textContent]);
    };
  });
  const made = async () => {
    const part = await (await fetch(`${server.url}/api/admin/history?step=1&after=${first}`)).json();
    return [part.samples, part.fields.machine.indexOf("rooms_packets_out_total")];
  };
  const first = await page.evaluate(() => window.admin.samples.last.at - 1);
  // One that could not be drawn in its second is left out; five running are wanted.
  const run = await until("five seconds running", LONG, async () => {
    const drawn = await page.evaluate(() => window.drawn);
    const [samples] = await made();
    const at = samples.map((sample) => sample.at);
    return drawn.map((_, index) => drawn.slice(index, index + 6)).find(
      (part) => part.length === 6 && part.every(([when], index) => at.indexOf(when) === at.indexOf(part[0][0]) + index && at.includes(when)),
    );
  });
  const [samples, index] = await made();
  const at = (when) => samples.find((sample) => sample.at === when);
  for (const [before, now] of run.slice(1).map(([when, text], index) => [run[index][0], [when, text]])) {
    const rate = ((at(now[0]).machine[index] - at(before).machine[index]) * 1000) / (now[0] - before);
    const [value, unit] = now[1].split(" ");
    const shown = Number(value) * ({ "/s": 1, "k/s": 1e3, "M/s": 1e6 })[unit];
    assert.ok(Math.abs(shown - rate) <= 0.01 * rate, `${now[1]} is ${rate}`);
  }
  assert.equal(Math.round((run[5][0] - run[0][0]) / 1000), 5, "a second each");
});

test("lists of thousands are searched, sorted and walked by keyboard, and only what is seen is there", async () => {
  await go(page, "sessions");
  await until("all rows", LONG, async () => (await rows("Sessions")) === "2,001");
  const body = page.locator(".body");
  const seen = () => body.locator(".row").count();
  await page.evaluate(() => {
    window.most = 0;
    const look = () => (window.most = Math.max(window.most, document.querySelectorAll(".body .row").length));
    new MutationObserver(look).observe(document.querySelector(".space"), { childList: true });
  });
  for (const title of ["Stream", "Role", "Address", "Worker", "Here for", "Id"]) {
    await page.getByRole("columnheader", { name: title }).getByRole("button").focus();
    await page.keyboard.press("Enter");
    const order = page.getByRole("columnheader", { name: title });
    await until(`by ${title}`, LONG, async () => (await order.getAttribute("aria-sort")) !== "none");
    assert.equal((await ids()).length, VIEWERS + 1);
  }
  const search = page.getByLabel("Search Sessions");
  await search.fill("publisher");
  await until("the publisher", LONG, async () => (await rows("Sessions")) === "1 of 2,001");
  await search.fill("");
  await until("all rows", LONG, async () => (await rows("Sessions")) === "2,001");
  await body.focus();
  await page.keyboard.press("End");
  await until("the last row", LONG, () => page.locator('.row[aria-rowindex="2002"][aria-selected="true"]').count());
  const last = (await ids()).at(-1);
  assert.ok((await seen()) <= ROWS_MAX && (await page.evaluate(() => window.most)) <= ROWS_MAX);
  await page.keyboard.press("Enter");
  await until("how it does", LONG, async () => (await page.locator(".facts").count()) === 2);
  assert.match(page.url(), new RegExp(`#/sessions/${last}$`));
  await until("who it is", LONG, async () => (await page.locator(".facts").first().innerText()).includes("connected"));
});

test("nothing of it is cut off on a phone, in dark or light", async () => {
  for (const [width, height] of [[1280, 900], [390, 844], [360, 740]]) {
    await page.setViewportSize({ width, height });
    for (const name of VIEWS) {
      await go(page, name);
      await until(`a table of ${name}`, LONG, async () => !(await page.locator("main").innerText()).includes("Loading"));
      for (const colorScheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme });
        assert.deepEqual(await cuts(page), { cut: [], page: 0, main: 0 }, `${name} at ${width}, ${colorScheme}`);
      }
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 1280, height: 900 });
});

test("it takes less than 50 MB of the browser with an hour of samples, and no more the longer it is looked at", async (context) => {
  await page.evaluate(() => {
    const { samples } = window.admin;
    const hour = Array.from({ length: 3600 }, (_, index) => ({ ...structuredClone(samples.last), at: samples.last.at - 1000 * (3600 - index) }));
    samples.all = [...hour, samples.last];
  });
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("Performance.enable");
  const round = async () => {
    for (const name of VIEWS) {
      await go(page, name);
      await until(`a table of ${name}`, LONG, async () => !(await page.locator("main").innerText()).includes("Loading"));
    }
    await go(page, "sessions");
    await until("all rows", LONG, async () => (await rows("Sessions")) === "2,001");
    await devtools.send("HeapProfiler.collectGarbage");
    const { metrics } = await devtools.send("Performance.getMetrics");
    return Object.fromEntries(metrics.map(({ name, value }) => [name, value]));
  };
  const [first, second, third] = [await round(), await round(), await round()];
  // What its scripts hold after everything was thrown away that nobody needs, and what the browser holds for the page: with its
  // elements, and with code and what is not thrown away yet.
  const { bytes } = await page.evaluate(() => performance.measureUserAgentSpecificMemory());
  context.diagnostic(`memory: ${(third.JSHeapUsedSize / 1e6).toFixed(1)} MB of scripts, ${(bytes / 1e6).toFixed(1)} MB of the page in all`);
  for (const used of [third.JSHeapUsedSize, bytes]) assert.ok(used < MEMORY_MAX, `${used} bytes`);
  for (const name of ["Nodes", "JSEventListeners"]) {
    const counts = [first, second, third].map((metrics) => metrics[name]);
    assert.ok(counts[2] <= counts[0] + FEW, `${name}: ${counts}`);
  }
});

test("nothing was complained of", () => {
  assert.deepEqual(faults, []);
});
