// The page of a room, `/room/NAME`: five people meet on it.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { launch, open, until } from "./browser.mjs";
import { token } from "./livekit.mjs";
import { PATIENCE, SLOW_CAMERA, allFlow, meet, openRoom, shows, tile } from "./meeting.mjs";
import { serve } from "./server.mjs";

const NAMES = ["Ada", "Bob", "Cleo", "Dan", "Eve"];
const others = (name) => NAMES.filter((other) => other !== name);

describe("five people meet", () => {
  let server, browser;
  const pages = new Map();
  const each = (act, names = NAMES) => Promise.all(names.map((name) => act(pages.get(name), name)));
  const press = (name, id) => pages.get(name).click(`#${id}`);

  before(async () => {
    server = await serve();
    browser = await launch(SLOW_CAMERA);
    for (const name of NAMES) pages.set(name, await meet(browser, server, "five", name));
  });

  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  test("each sees and hears all others", () =>
    each((page, name) => allFlow(page, others(name).flatMap((other) => [`${other}/camera`, `${other}/microphone`]), 2)));

  test("each has a tile, and all fit on the screen", () =>
    each(async (page, name) => {
      for (const other of NAMES) await shows(page, other, "data-picture", "true");
      await tile(page, `${name} (you)`).waitFor();
      const { width, height } = page.viewportSize();
      const boxes = await Promise.all((await page.locator(".tile").all()).map((one) => one.boundingBox()));
      assert.equal(boxes.length, 5);
      for (const box of boxes) assert.ok(box.x >= 0 && box.y >= 0 && box.x + box.width <= width && box.y + box.height <= height, JSON.stringify(box));
      assert.equal(await page.locator("#count").innerText(), "5 people");
    }));

  test("who is muted, or has no picture, is shown so, until it is over", async () => {
    await press("Ada", "mic-button");
    await press("Ada", "camera-button");
    await each(async (page) => {
      await tile(page, "Ada").locator(".muted").waitFor();
      await shows(page, "Ada", "data-picture", "false");
      assert.equal(await tile(page, "Ada").locator(".avatar").innerText(), "A");
    }, others("Ada"));
    await press("Ada", "mic-button");
    await press("Ada", "camera-button");
    await each(async (page) => {
      await tile(page, "Ada").locator(".muted").waitFor({ state: "hidden" });
      await shows(page, "Ada", "data-picture", "true");
      await allFlow(page, ["Ada/camera", "Ada/microphone"]);
    }, others("Ada"));
  });

  test("who speaks is marked, and nobody else", async () => {
    const pressAll = () => Promise.all(others("Bob").map((name) => press(name, "mic-button")));
    await pressAll();
    await each(async (page) => {
      for (const name of others("Bob")) await shows(page, name, "data-speaking", "false");
      await shows(page, "Bob", "data-speaking", "true");
    });
    await pressAll();
  });

  test("what is said in the chat is read by all, and counted while the chat is closed", async () => {
    const ada = pages.get("Ada");
    await ada.click("#chat-button");
    await ada.keyboard.type("Is this <b>on</b>?");
    await ada.keyboard.press("Enter");
    await each(async (page, name) => {
      await until("the message is here", PATIENCE, async () => /Ada.*Is this <b>on<\/b>\?/s.test(await page.locator("#messages").textContent()));
      if (name === "Ada") return;
      assert.equal(await page.locator("#unread").innerText(), "1");
      await page.click("#chat-button");
      await page.locator("#unread").waitFor({ state: "hidden" });
      await page.keyboard.press("Escape");
      await page.locator("#chat").waitFor({ state: "hidden" });
    });
    await ada.keyboard.press("Escape");
  });

  test("a screen is shared, seen large, and taken away", async () => {
    await press("Cleo", "screen-button");
    await each(async (page, name) => {
      await shows(page, "Cleo", "data-picture", "true", "screen");
      if (name === "Cleo") return;
      await allFlow(page, ["Cleo/screen_share"]);
      const [screen, camera] = await Promise.all(["screen", "camera"].map((source) => tile(page, "Cleo", source).boundingBox()));
      assert.ok(screen.width > 2 * camera.width, `${screen.width} beside ${camera.width}`);
    });
    await press("Cleo", "screen-button");
    await each((page) => tile(page, "Cleo", "screen").waitFor({ state: "detached" }));
  });

  test("numbers are there on demand", async () => {
    const page = pages.get("Dan");
    const numbers = tile(page, "Eve").locator(".numbers");
    assert.equal(await numbers.isVisible(), false);
    await page.getByRole("button", { name: "Numbers of Eve" }).click();
    await until("all numbers", PATIENCE, async () =>
      /Resolution\d+ × \d+.*Frames\/s[1-9].*Video.*(k|M)bit\/s VP8.*Audio\d+ kbit\/s opus.*Loss\d.*Layer\d of \d/s.test(await numbers.textContent()),
    );
    await press("Dan", "numbers-button");
    assert.equal(await page.locator(".numbers:visible").count(), 5);
    await press("Dan", "numbers-button");
    assert.equal(await page.locator(".numbers:visible").count(), 0);
  });

  test("on a phone nothing is outside, and the picture is there", async () => {
    const page = pages.get("Dan");
    const before = page.viewportSize();
    await page.setViewportSize({ width: 360, height: 640 });
    const boxes = await Promise.all((await page.locator(".controls button:visible, .tile").all()).map((one) => one.boundingBox()));
    for (const box of boxes) assert.ok(box.x >= 0 && box.x + box.width <= 360, JSON.stringify(box));
    assert.equal(await page.evaluate(() => document.scrollingElement.scrollWidth), 360);
    await allFlow(page, ["Ada/camera"]);
    await page.setViewportSize(before);
  });

  test("the keyboard reaches all controls", async () => {
    const page = pages.get("Dan");
    const visited = new Set();
    await page.locator(".brand").focus();
    for (let step = 0; step < 15; step++) {
      await page.keyboard.press("Tab");
      visited.add(await page.evaluate(() => document.activeElement.id || document.activeElement.getAttribute("aria-label")));
    }
    for (const wanted of ["mic-button", "camera-button", "screen-button", "chat-button", "numbers-button", "leave-button", "Numbers of Eve"]) {
      assert.ok(visited.has(wanted), `${wanted} of ${[...visited]}`);
    }
  });

  test("who leaves is gone for all, and may come again", async () => {
    await press("Eve", "leave-button");
    await pages.get("Eve").locator("#lobby").waitFor();
    for (const name of others("Eve")) await tile(pages.get(name), "Eve").waitFor({ state: "detached" });
    assert.equal(await pages.get("Ada").locator("#count").innerText(), "4 people");
    await until("Eve's camera", PATIENCE, () => pages.get("Eve").evaluate(() => document.getElementById("camera").value !== ""));
    await press("Eve", "join-button");
    await each((page) => allFlow(page, ["Eve/camera", "Eve/microphone"]), others("Eve"));
  });

  test("the page loads nothing from elsewhere", async () => {
    const hosts = await pages.get("Ada").evaluate(() => performance.getEntriesByType("resource").map((entry) => new URL(entry.name).host));
    assert.deepEqual([...new Set(hosts)], [new URL(server.url).host]);
  });
});

describe("where a token is needed", () => {
  let server, browser;

  before(async () => {
    const settings = ["auth.dev=false", "auth.hs256_secret=0123456789abcdef0123456789abcdef", "livekit.keys=devkey: secret", "livekit.participants_max=1"];
    server = await serve(...settings.flatMap((setting) => ["--set", setting]));
    browser = await launch(SLOW_CAMERA);
  });

  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  const problem = (page, pattern) => until(`${pattern}`, PATIENCE, async () => pattern.test(await page.locator("#problem").innerText()));

  test("who has none is asked for one, told what is wrong with it, and let in by a good one", async () => {
    const page = await openRoom(browser, server, "guarded");
    await page.fill("#name", "Ada");
    await page.click("#join-button");
    await problem(page, /who has a token/);
    for (const [bad, why] of [["nonsense", /not a JSON Web Token/], [token("guarded", "ada", {}, "another"), /not signed with its API key's secret/]]) {
      await page.fill("#token", bad);
      await page.keyboard.press("Enter");
      await problem(page, why);
    }
    await page.fill("#token", token("guarded", "ada"));
    await page.keyboard.press("Enter");
    await page.locator("#meeting").waitFor();
  });

  test("who finds the room full is told so", async () => {
    const page = await openRoom(browser, server, "guarded", `?token=${token("guarded", "bob")}`);
    assert.equal(await page.locator("#name").inputValue(), "bob");
    await page.click("#join-button");
    await problem(page, /the room is full/);
  });

  test("who may not publish can watch", async () => {
    const page = await meet(browser, server, "watched", "eve", `?token=${token("watched", "eve", { canPublish: false })}`);
    assert.equal(await page.locator("#mic-button").isDisabled(), true);
    assert.equal(await page.evaluate(() => window.meeting.room.localParticipant.trackPublications.size), 0);
  });

  test("the server gives out tokens to nobody else", async () => {
    const ask = (headers) =>
      fetch(`${server.url}/api/livekit/tokens`, { method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify({ room: "a", identity: "b" }) });
    assert.equal((await ask({})).status, 401);
    assert.equal((await ask({ authorization: `Bearer ${token("a", "b")}` })).status, 401);
  });
});

test("the start page leads to rooms where there are any", async () => {
  const server = await serve();
  const browser = await launch(SLOW_CAMERA);
  try {
    const page = await open(browser.context, `${server.url}/`);
    await page.fill("#room", "a room");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/room/a%20room");
    assert.equal(await page.locator("#lobby-room").innerText(), "a room");
    // A page of another origin is given nothing.
    const headers = { "content-type": "application/json", origin: "https://elsewhere.example" };
    const answer = await fetch(`${server.url}/api/livekit/tokens`, { method: "POST", headers, body: JSON.stringify({ room: "a", identity: "b" }) });
    assert.equal(answer.status, 403);
  } finally {
    await browser.close();
    await server.stop();
  }
});
