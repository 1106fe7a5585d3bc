// Firefox on the page at `/`: what the tests of tests/browser ask of Chromium.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { serve } from "../browser/server.mjs";
import { lossesOf } from "../support/losses.mjs";
import { inbound, publish, until } from "../support/page.mjs";
import { launch, open } from "./browser.mjs";
import { stacks } from "./stacks.mjs";

const skip = ["chromium", "firefox"].some((name) => !stacks.some((stack) => stack.name === name)) && "a browser is not there";
let server, firefox, chromium, viewer, publisher;

before(async () => {
  if (skip) return;
  server = await serve();
  [firefox, chromium] = [await launch("firefox"), await launch("chromium")];
  viewer = await open(firefox.browser, `${server.url}/`);
  publisher = await open(chromium.browser, `${server.url}/`);
});

after(async () => {
  await firefox?.close();
  await chromium?.close();
  await server?.stop();
});

describe("Firefox watches three layers", { skip }, () => {
  before(async () => {
    await publish(publisher, { name: "three", token: "", source: "picture", simulcast: true, codec: "VP8", width: 960, height: 540 });
    await until("all three layers are sent", 90, () =>
      publisher.evaluate(() => window.millrace.publisher.flow?.layers.filter((layer) => layer.framesPerSecond > 5).length === 3),
    );
    await viewer.goto(`${server.url}/?watch=three`);
  });

  // By probes, unless the largest was small enough to begin with, as it may be while the encoder is new.
  test("auto comes to the largest on a good line", async () => {
    await until("the largest layer", 30, async () => (await inbound(viewer, "video")).frameWidth === 960);
    assert.equal(await lossesOf(server.url), 0);
  });

  test("a layer that is asked for comes, and auto comes back", async () => {
    const select = (layer) => viewer.evaluate((layer) => window.millrace.watcher.select(layer), layer);
    await select(0);
    await until("the smallest layer", 10, async () => (await inbound(viewer, "video")).frameWidth === 240);
    await select(null);
    await until("the largest layer", 30, async () => (await inbound(viewer, "video")).frameWidth === 960);
  });

  test("a reload shows the picture again", async () => {
    await viewer.reload();
    await playing(viewer);
  });

  test("an ICE restart gives new credentials, and the same session goes on", async () => {
    const ufrag = () =>
      viewer.evaluate(() => /a=ice-ufrag:(.*)/.exec(window.millrace.watcher.pc.currentRemoteDescription.sdp)?.[1]);
    const first = await ufrag();
    const url = await viewer.evaluate(() => window.millrace.watcher.session.url);
    await viewer.evaluate(() => window.millrace.watcher.session.restartIce());
    await until("connected by the new credentials", 10, async () => {
      const state = await viewer.evaluate(() => window.millrace.watcher.pc.iceConnectionState);
      return (state === "connected" || state === "completed") && (await ufrag()) !== first;
    });
    const { framesDecoded } = await inbound(viewer, "video");
    await until("thirty more frames", 10, async () => (await inbound(viewer, "video")).framesDecoded > framesDecoded + 30);
    assert.equal(await viewer.evaluate(() => window.millrace.watcher.session.url), url);
  });
});

describe("Firefox publishes three layers", { skip }, () => {
  test("Chromium has the largest of them", async () => {
    const page = await open(firefox.browser, `${server.url}/`);
    await publish(page, { name: "fox", token: "", source: "picture", simulcast: true, codec: "VP8", width: 960, height: 540 });
    await publisher.goto(`${server.url}/?watch=fox`);
    await until("the largest layer", 60, async () => (await inbound(publisher, "video")).frameWidth === 960);
    const layers = await publisher.evaluate(() => window.millrace.watcher.session.stats().then((stats) => stats.layers[0]));
    assert.equal(layers.layer_count, 3);
    assert.equal(layers.rid, "f");
  });
});

async function playing(page) {
  await until("the page decodes video", 15, async () => (await inbound(page, "video")).framesDecoded > 10);
}
