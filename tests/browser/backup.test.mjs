// A camera in VP9 with VP8 as its backup, by LiveKit's own client: who cannot decode VP9 sees it in VP8.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { launch, until } from "./browser.mjs";
import { codec, enter, flows, hears } from "./livekit.mjs";
import { serve } from "./server.mjs";

/** In which each step happens, also where encoders share two cores with other programs. Nothing waits for it to pass. */
const PATIENCE = 60;
/** LiveKit's `BackupCodecPolicy`. */
const SIMULCAST = 1;
/** Little to encode, as both codecs are encoded at a time. */
const SMALL = { width: 320, height: 180, frameRate: 10 };

let server, publisherBrowser, viewerBrowser;

before(async () => {
  server = await serve();
  publisherBrowser = await launch();
  viewerBrowser = await launch();
});

after(async () => {
  await viewerBrowser?.close();
  await publisherBrowser?.close();
  await server?.stop();
});

/** Publishes a page's camera in both codecs. */
function publish(page, backupCodecPolicy) {
  return page.evaluate(
    ({ resolution, backupCodecPolicy }) =>
      room.localParticipant.setCameraEnabled(true, { resolution }, { videoCodec: "vp9", backupCodec: { codec: "vp8" }, backupCodecPolicy }),
    { resolution: SMALL, backupCodecPolicy },
  );
}

/** Which codecs a page encodes of its camera: those that have a sender with a layer that is on. */
function encoded(page) {
  return page.evaluate(() => {
    const { track } = room.localParticipant.getTrackPublication("camera");
    const isOn = (sender) => sender?.getParameters().encodings.some(({ active }) => active);
    const backups = [...track.simulcastCodecs].filter(([, { sender }]) => isOn(sender)).map(([codec]) => codec);
    return [...(isOn(track.sender) ? [track.codec] : []), ...backups].join(" ");
  });
}

/** Waits until a page decodes the camera of "alice" in this codec. */
async function sees(page, mime) {
  await until(`the camera comes in ${mime}`, PATIENCE, async () => (await codec(page, "alice", "camera")) === mime);
  await flows(page, "alice", "camera", PATIENCE);
}

for (const [mode, singlePeerConnection] of [["one peer connection", true], ["two peer connections", false]]) {
  describe(mode, () => {
    const options = { singlePeerConnection, dynacast: true };
    const lacks = ["video/VP9", "video/AV1"];

    test("who lacks VP9 sees VP8 while others go on with VP9, and the backup ends with its last viewer", async () => {
      const room = `both-${singlePeerConnection}`;
      const alice = await enter(publisherBrowser, server, room, "alice", { options });
      const carol = await enter(viewerBrowser, server, room, "carol", { options });
      const bob = await enter(viewerBrowser, server, room, "bob", { options, lacks });
      await publish(alice, SIMULCAST);
      await sees(bob, "video/VP8");
      await sees(carol, "video/VP9");
      assert.equal(await encoded(alice), "vp9 vp8");

      await alice.evaluate(() => room.localParticipant.setCameraEnabled(false));
      for (const page of [bob, carol]) await hears(page, "trackMuted", { kind: "video", from: "alice" });
      await alice.evaluate(() => room.localParticipant.setCameraEnabled(true));
      await sees(bob, "video/VP8");
      await sees(carol, "video/VP9");

      for (const scenario of ["signal-reconnect", "full-reconnect"]) {
        await alice.evaluate((scenario) => ((heard.length = 0), room.simulateScenario(scenario)), scenario);
        await hears(alice, "reconnected", {}, PATIENCE);
        await sees(bob, "video/VP8");
        await sees(carol, "video/VP9");
      }

      await bob.close();
      await until("VP9 alone is encoded", PATIENCE, async () => (await encoded(alice)) === "vp9");
      await alice.evaluate(() => room.localParticipant.unpublishTrack(room.localParticipant.getTrackPublication("camera").track));
      await hears(carol, "trackUnsubscribed", { kind: "video", from: "alice" });
      for (const page of [alice, carol]) await page.close();
    });

    test("unless both are asked for, everybody goes on with VP8 when somebody lacks VP9, and loses nothing", async () => {
      const room = `backup-${singlePeerConnection}`;
      const alice = await enter(publisherBrowser, server, room, "alice", { options });
      const carol = await enter(viewerBrowser, server, room, "carol", { options });
      await publish(alice);
      await sees(carol, "video/VP9");
      const bob = await enter(viewerBrowser, server, room, "bob", { options, lacks });
      await sees(bob, "video/VP8");
      await sees(carol, "video/VP8");
      await until("VP8 alone is encoded", PATIENCE, async () => (await encoded(alice)) === "vp8");
      await flows(carol, "alice", "camera", PATIENCE);
      const lost = await carol.evaluate(() => heard.filter(({ event }) => event === "trackUnsubscribed"));
      assert.deepEqual(lost, [], "it is the same track");
      for (const page of [alice, bob, carol]) await page.close();
    });
  });
}
