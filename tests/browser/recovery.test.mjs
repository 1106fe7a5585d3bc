// Connections end, publishers vanish and return, the server is started anew: the viewer's page finds its way back.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { inbound, launch, moves, open, playing, publish, until } from "./browser.mjs";
import { serve } from "./server.mjs";

const PICTURE = { name: "back", simulcast: false, width: 320, height: 180 };
let server, browser, publisher, viewer;

before(async () => {
  server = await serve();
  browser = await launch();
  publisher = await open(browser.context, `${server.url}/`);
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

test("a viewer who is early waits, and sees the stream when it begins", async () => {
  viewer = await open(browser.context, `${server.url}/?watch=back`);
  await until("the page waits", 30, async () => (await viewer.locator("#state").innerText()) === "waiting");
  await publish(publisher, PICTURE);
  await playing(viewer, 30);
});

test("a publisher who stops is awaited and seen again", async () => {
  await publisher.evaluate(() => window.millrace.publisher.stop());
  await until("the page waits", 30, async () => (await viewer.locator("#state").innerText()) === "waiting");
  await publish(publisher, PICTURE);
  await playing(viewer, 30);
  await moves(viewer);
});

test("a publisher whose page crashes and is opened again is seen again", async () => {
  await publisher.goto("chrome://crash").catch(() => undefined);
  publisher = await open(browser.context, `${server.url}/`);
  await publish(publisher, PICTURE);
  const before = await inbound(viewer, "video");
  await until("frames arrive anew", 45, async () => {
    const now = await inbound(viewer, "video");
    return now.framesDecoded > 10 && (now.ssrc !== before.ssrc || now.framesDecoded > before.framesDecoded + 30);
  });
  await moves(viewer);
});

test("an ICE restart gives new credentials, and the same session goes on", async () => {
  await markConnection(viewer, "watcher");
  const ufrag = () =>
    viewer.evaluate(() => /a=ice-ufrag:(.*)/.exec(window.millrace.watcher.pc.currentRemoteDescription.sdp)?.[1]);
  const first = await ufrag();

  await viewer.evaluate(() => window.millrace.watcher.session.restartIce());

  await until("connected by the new credentials", 30, async () => {
    const state = await viewer.evaluate(() => window.millrace.watcher.pc.iceConnectionState);
    return (state === "connected" || state === "completed") && (await ufrag()) !== first;
  });
  const { framesDecoded } = await inbound(viewer, "video");
  await until("thirty more frames", 30, async () => (await inbound(viewer, "video")).framesDecoded > framesDecoded + 30);
  assert.ok(await viewer.evaluate(() => window.millrace.watcher.pc.seenBefore), "it is the same connection");
});

test("a lost connection is made again", async () => {
  await markConnection(viewer, "watcher");
  await viewer.evaluate(() => window.millrace.watcher.pc.close());
  await newConnection(viewer, "watcher", 30);
  await playing(viewer);
});

test("a server that is started anew is found again by publisher and viewer", async () => {
  await markConnection(publisher, "publisher");
  await markConnection(viewer, "watcher");
  await server.restart();
  await newConnection(publisher, "publisher", 30);
  await newConnection(viewer, "watcher", 30);
  await playing(viewer);
  await moves(viewer);
});

/** Lets `newConnection` tell the connection of now from a later one. */
async function markConnection(page, role) {
  await page.evaluate((role) => void (window.millrace[role].pc.seenBefore = true), role);
}

async function newConnection(page, role, seconds) {
  await until(`a new connection of the ${role}`, seconds, () =>
    page.evaluate((role) => {
      const { pc } = window.millrace[role];
      return pc && !pc.seenBefore && pc.connectionState === "connected";
    }, role),
  );
}
