// What tests of the dashboard look at: its page, and what the server itself says of the same.

import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { until } from "./browser.mjs";

/** The dashboard in a page of its own; whatever it complains of comes to `faults`. */
export async function dashboard(context, url, hash, faults) {
  const page = await context.newPage();
  page.on("pageerror", (error) => faults.push(error.stack));
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && faults.push(message.text()));
  await page.goto(`${url}/admin${hash}`);
  await live(page);
  return page;
}

export async function live(page) {
  await until("two samples", 30, () => page.evaluate(() => window.admin.samples.all.length > 1));
  await until("it says so", 30, () => page.evaluate(() => document.getElementById("link").textContent === "live"));
}

/** Goes to a view, such as "pump" or "sessions?stream=demo". */
export async function go(page, hash) {
  await page.evaluate((hash) => void (location.hash = `#/${hash}`), hash);
  const name = hash.split(/[/?]/)[0];
  const title = name[0].toUpperCase() + name.slice(1);
  const isThere = (title) => document.querySelector("main h1").textContent === title;
  await until(`the view ${hash}`, 30, () => page.evaluate(isThere, title));
}

/** A number of the newest sample in the page. */
export const number = (page, name) => page.evaluate((name) => window.admin.samples.machine(name).at(-1), name);

/** What a figure of the view that is seen says. */
export const figure = (page, label) =>
  page.evaluate((label) => {
    const found = [...document.querySelectorAll(".figures > div")].find((tile) => tile.querySelector("dt").textContent === label);
    return found?.querySelector("dd").textContent;
  }, label);

/** The sum of a family at /metrics. */
export async function metric(url, name, labels = "") {
  const text = await (await fetch(`${url}/metrics`)).text();
  const lines = text.split("\n").filter((line) => line.startsWith(`millrace_${name}`) && /[ {]/.test(line[9 + name.length]));
  const meant = lines.filter((line) => line.includes(labels));
  assert.ok(meant.length > 0, name);
  return meant.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

/** All entries of a list of the API, of which each part leads to the next. */
export async function list(url, path) {
  const all = [];
  for (let next = new URL(path, url); next; ) {
    const response = await fetch(next);
    assert.equal(response.status, 200, `${next}`);
    all.push(...(await response.json()));
    const link = /<([^>]*)>; rel="next"/.exec(response.headers.get("link") ?? "")?.[1];
    next = link ? new URL(link, next) : null;
  }
  return all;
}

/** What is cut off of the texts that have to be read in whole, and how much wider than the page is what is in it. */
export const cuts = (page) =>
  page.evaluate(() => {
    const main = document.querySelector("main");
    const texts = [...document.querySelectorAll(".figures dt, .figures dd, .facts dt, figcaption, .legend, .grid .row, .head .cell, nav a, h1, h2")];
    const cut = texts.filter(
      ({ scrollWidth, clientWidth, scrollHeight, clientHeight }) => (scrollWidth > clientWidth || scrollHeight > clientHeight) && clientWidth > 0,
    );
    return {
      cut: cut.map((element) => element.textContent),
      page: document.documentElement.scrollWidth - innerWidth,
      main: main.scrollWidth - main.clientWidth,
    };
  });

/** A UDP port that nobody has, below those that the kernel gives away meanwhile. */
export async function freePort() {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    const probe = createSocket("udp4").bind(port, "127.0.0.1");
    const isFree = await once(probe, "listening").then(() => true, () => false);
    probe.close();
    if (isFree) return port;
  }
}
