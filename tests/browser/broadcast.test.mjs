// One page publishes by WHIP, others watch by WHEP.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { cipher, frameRate, framesEncoded, hears, inbound, launch, moves, open, pauseVideo, playing, publish, transportProtocol, until, width } from "./browser.mjs";
import { serve } from "./server.mjs";

let server, publisherBrowser, viewerBrowser, publisher;

before(async () => {
  server = await serve();
  // Two browsers: in one, the publisher's encoder and the viewers' decoders would share a process.
  publisherBrowser = await launch();
  viewerBrowser = await launch();
  publisher = await open(publisherBrowser.context, `${server.url}/`);
});

after(async () => {
  await viewerBrowser?.close();
  await publisherBrowser?.close();
  await server?.stop();
});

describe("one layer", () => {
  let viewer;

  before(async () => {
    await publish(publisher, { name: "one", simulcast: false, width: 640, height: 360 });
    viewer = await open(viewerBrowser.context, `${server.url}/?watch=one`);
    await playing(viewer);
  });

  after(() => viewer?.close());

  test("what the publisher encodes is decoded, and the picture moves", async () => {
    await moves(viewer);
    // Frames are counted, not rates: a busy machine encodes few, and two windows of time on it see different ones. What is
    // encoded after the second reading is decoded after the first.
    const decodedBefore = (await inbound(viewer, "video")).framesDecoded;
    const encodedBefore = await framesEncoded(publisher);
    await until("a hundred more frames are encoded", 60, async () => (await framesEncoded(publisher)) >= encodedBefore + 100);
    await pauseVideo(publisher, true);
    const encoded = (await framesEncoded(publisher)) - encodedBefore;
    const decoded = async () => (await inbound(viewer, "video")).framesDecoded - decodedBefore;
    await until(`at least 80 % of ${encoded} frames are decoded`, 30, async () => (await decoded()) >= 0.8 * encoded);
    // A browser's counts are up to 50 ms old. Nothing is encoded meanwhile, so what is decoded twice stays too much.
    const inAll = (await inbound(viewer, "video")).framesDecoded;
    await until("none is decoded twice", 30, async () => inAll <= (await framesEncoded(publisher)));
    await pauseVideo(publisher, false);
  });

  test("audio flows", () => hears(viewer));

  test("both sides agreed on AES-GCM", async () => {
    assert.match(await cipher(publisher, "publisher"), /GCM/);
    assert.match(await cipher(viewer, "watcher"), /GCM/);
  });

  test("a reload of the viewer's page shows the picture again", async () => {
    await viewer.reload();
    await playing(viewer);
    await moves(viewer);
  });

  test("a late viewer sees the picture", async () => {
    const late = await open(viewerBrowser.context, `${server.url}/`);
    await late.evaluate(() => void window.millrace.watch("one"));
    const start = Date.now();
    await playing(late, 30);
    console.log(`late viewer: first pictures ${Date.now() - start} ms after the click`);
    await late.close();
  });

  test("the list counts viewers, and a closed page is no viewer any more", async () => {
    const viewers = () =>
      publisher.evaluate(async () => {
        await window.millrace.refresh();
        return window.millrace.streams.find((stream) => stream.name === "one")?.viewers;
      });
    await until("one viewer", 30, async () => (await viewers()) === 1);
    const second = await open(viewerBrowser.context, `${server.url}/?watch=one`);
    await playing(second);
    await until("two viewers", 30, async () => (await viewers()) === 2);
    await second.close({ runBeforeUnload: false });
    await until("one viewer again", 40, async () => (await viewers()) === 1);
  });

  test("where UDP is blocked, media comes over TCP", async () => {
    const page = await viewerBrowser.context.newPage();
    await page.route("**/whep/one", async (route) => {
      const response = await route.fetch();
      const body = (await response.text()).replace(/^a=candidate:.* udp .*\r\n/gim, "");
      await route.fulfill({ response, body });
    });
    await page.goto(`${server.url}/?watch=one`);
    await playing(page);
    assert.equal(await transportProtocol(page), "tcp");
    await moves(page);
    await page.close();
  });

  test("stop deletes the session on the server", async () => {
    const url = await viewer.evaluate(() => window.millrace.watcher.session.url);
    await viewer.locator("#stop").click();
    await until("the resource is gone", 30, async () => (await fetch(`${url}/stats`)).status === 404);
    assert.equal(await viewer.locator("#state").innerText(), "stopped");
  });
});

describe("simulcast", () => {
  let viewer;

  before(async () => {
    await publish(publisher, { name: "three", simulcast: true, width: 960, height: 540 });
    await until("all three layers are sent", 90, () =>
      publisher.evaluate(() => window.millrace.publisher.flow?.layers.filter((layer) => layer.framesPerSecond > 5).length === 3),
    );
    viewer = await open(viewerBrowser.context, `${server.url}/?watch=three`);
    await playing(viewer);
  });

  after(() => viewer?.close());

  test("auto climbs to the largest layer on a good line", async () => {
    await width(viewer, "960", 60, (width) => width === 960);
  });

  test("layers switch down and up without loss or freeze, by the page's own buttons", async () => {
    const layers = viewer.locator("#layers input");
    await until("auto and three layers", 30, async () => (await layers.count()) === 4);
    const first = await inbound(viewer, "video");

    await layers.nth(1).check();
    await width(viewer, "240", 30, (width) => width === 240);
    await until("the small layer flows", 30, async () => (await frameRate(viewer, 2)) > 15);

    await layers.nth(2).check();
    await width(viewer, "480", 60, (width) => width === 480);

    await layers.nth(3).check();
    await width(viewer, "960", 60, (width) => width === 960);

    await layers.nth(1).check();
    await width(viewer, "240 again", 30, (width) => width === 240);
    await layers.nth(0).check();
    const last = await width(viewer, "960 by auto", 60, (width) => width === 960);

    assert.equal(last.packetsLost, first.packetsLost, "no gap in sequence numbers");
    const frozen = last.totalFreezesDuration - first.totalFreezesDuration;
    assert.ok(frozen < 1, `${frozen} s of freezes in five switches, more than a busy machine explains`);
    await moves(viewer);
  });

  test("the page says which layer is shown", async () => {
    await until("layer 2 is marked", 30, () =>
      viewer.evaluate(() => window.millrace.watcher.server?.layers?.[0]?.current === 2),
    );
    assert.match(await viewer.locator("#stats").innerText(), /f \(largest\)/);
  });
});

describe("the form", () => {
  test("publishes a camera and stops again", async () => {
    const page = await open(publisherBrowser.context, `${server.url}/?publish=camera&source=camera`);
    await page.locator("#publish-start").click();
    await until("the camera is live", 30, async () => (await page.locator("#publish-state").innerText()) === "camera: live");
    const viewer = await open(viewerBrowser.context, `${server.url}/?watch=camera`);
    await playing(viewer, 30);
    await moves(viewer, 0.1);
    await page.locator("#publish-stop").click();
    await until("the form is ready again", 30, () => page.locator("#publish-start").isVisible());
    await page.close();
    await viewer.close();
  });

  test("says why a stream cannot be published", async () => {
    const page = await open(publisherBrowser.context, `${server.url}/`);
    await page.route("**/whip/*", (route) =>
      route.fulfill({
        status: 403,
        contentType: "application/problem+json",
        body: JSON.stringify({ title: "forbidden", detail: "the token does not allow this name" }),
      }),
    );
    await page.locator("#publish-start").click();
    await until("the reason", 30, async () =>
      (await page.locator("#publish-state").innerText()).includes("the token does not allow this name"),
    );
    await page.close();
  });
});

describe("other codecs", () => {
  for (const codec of ["VP9", "H264", "AV1"]) {
    test(`${codec} passes through`, async (t) => {
      const can = await publisher.evaluate(
        (codec) => RTCRtpSender.getCapabilities("video").codecs.some((entry) => entry.mimeType === `video/${codec}`),
        codec,
      );
      if (!can) return t.skip(`this Chromium does not encode ${codec}`);
      const name = `codec-${codec.toLowerCase()}`;
      await publish(publisher, { name, codec, simulcast: false, width: 320, height: 180 });
      const viewer = await open(viewerBrowser.context, `${server.url}/?watch=${name}`);
      await playing(viewer);
      await until(`the page says ${codec}`, 30, () =>
        viewer.evaluate((codec) => window.millrace.watcher.flow?.videoCodec === codec, codec),
      );
      await moves(viewer);
      await viewer.close();
    });
  }
});
