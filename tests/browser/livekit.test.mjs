// Rooms of LiveKit's protocol, joined by its own client for browsers, by one peer connection and by two.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { launch, until } from "./browser.mjs";
import { admin, enter, flows, hears, received, sent, show, soundSent, token } from "./livekit.mjs";
import { serve } from "./server.mjs";

let server, publisherBrowser, viewerBrowser;

before(async () => {
  server = await serve();
  // As elsewhere: encoders and decoders in processes of their own.
  publisherBrowser = await launch();
  viewerBrowser = await launch();
});

after(async () => {
  await viewerBrowser?.close();
  await publisherBrowser?.close();
  await server?.stop();
});

for (const [mode, singlePeerConnection] of [["one peer connection", true], ["two peer connections", false]]) {
  describe(mode, () => {
    const room = `browser-${singlePeerConnection}`;
    let alice, bob;

    before(async () => {
      alice = await enter(publisherBrowser, server, room, "alice", { options: { singlePeerConnection, dynacast: true } });
      bob = await enter(viewerBrowser, server, room, "bob", { options: { singlePeerConnection, adaptiveStream: true } });
    });

    after(async () => {
      await alice?.close();
      await bob?.close();
    });

    test("both see each other", async () => {
      await hears(alice, "participantConnected", { identity: "bob" });
      assert.deepEqual(await bob.evaluate(() => [...room.remoteParticipants.keys()]), ["alice"]);
    });

    test("camera and microphone of one are seen and heard by the other", async () => {
      await alice.evaluate(() => room.localParticipant.enableCameraAndMicrophone());
      await hears(bob, "trackSubscribed", { kind: "video", source: "camera", from: "alice" });
      await hears(bob, "trackSubscribed", { kind: "audio", source: "microphone", from: "alice" });
      await show(bob, "alice", 1280, 720);
      await flows(bob, "alice", "camera");
      await flows(bob, "alice", "microphone");
    });

    test("sound is sent with redundancy", async () => {
      await until("audio/red", 20, async () => (await soundSent(alice)) === "audio/red");
      assert.equal(await bob.evaluate(() => room.remoteParticipants.get("alice").getTrackPublication("microphone").mimeType), "audio/red");
    });

    test("who speaks is told", () => hears(bob, "activeSpeakersChanged", { speakers: ["alice"] }));

    test("the layer follows the size of the element, and layers that nobody watches are not sent", async () => {
      await until("the whole picture", 40, async () => (await received(bob, "alice", "camera")).frameWidth === 1280);
      await show(bob, "alice", 160, 90);
      await until("a small picture", 30, async () => (await received(bob, "alice", "camera")).frameWidth === 320);
      await until("the smallest layer alone", 30, async () => (await sent(alice)) === "q");
      await show(bob, "alice", 1280, 720);
      await until("the whole picture again", 40, async () => (await received(bob, "alice", "camera")).frameWidth === 1280);
      assert.equal(await sent(alice), "fhq");
    });

    test("muted and unmuted", async () => {
      for (const [kind, source, set] of [["audio", "microphone", "setMicrophoneEnabled"], ["video", "camera", "setCameraEnabled"]]) {
        await alice.evaluate((set) => room.localParticipant[set](false), set);
        await hears(bob, "trackMuted", { kind, from: "alice" });
        await alice.evaluate((set) => room.localParticipant[set](true), set);
        await hears(bob, "trackUnmuted", { kind, from: "alice" });
        await flows(bob, "alice", source);
      }
    });

    test("data goes both ways, by both channels, and to whom it is for", async () => {
      for (const [from, to, name] of [[alice, bob, "alice"], [bob, alice, "bob"]]) {
        for (const reliable of [true, false]) {
          const text = `from ${name}, ${reliable}`;
          await from.evaluate(({ text, reliable }) => room.localParticipant.publishData(new TextEncoder().encode(text), { reliable, topic: "t" }), { text, reliable });
          await hears(to, "dataReceived", { text, from: name, topic: "t" });
        }
      }
    });

    test("a text stream and a call of a method", async () => {
      await bob.evaluate(() => {
        room.registerTextStreamHandler("chat", async (reader, { identity }) => heard.push({ event: "text", from: identity, text: await reader.readAll() }));
        room.registerRpcMethod("twice", async ({ payload }) => payload + payload);
      });
      // More than one packet.
      const text = "millrace ".repeat(5_000);
      await alice.evaluate((text) => room.localParticipant.sendText(text, { topic: "chat" }), text);
      await hears(bob, "text", { from: "alice", text });
      const answer = await alice.evaluate(() => room.localParticipant.performRpc({ destinationIdentity: "bob", method: "twice", payload: "ab" }));
      assert.equal(answer, "abab");
    });

    test("the other publishes as well, and stops", async () => {
      await bob.evaluate(() => room.localParticipant.setMicrophoneEnabled(true));
      await hears(alice, "trackSubscribed", { kind: "audio", from: "bob" });
      await flows(alice, "bob", "microphone");
      await bob.evaluate(() => room.localParticipant.unpublishTrack(room.localParticipant.getTrackPublication("microphone").track));
      await hears(alice, "trackUnsubscribed", { kind: "audio", from: "bob" });
    });

    test("after a cut of the signalling connection everything goes on", async () => {
      const sid = await bob.evaluate(() => room.localParticipant.sid);
      for (const page of [alice, bob]) {
        await page.evaluate(() => (heard.length = 0));
        await page.evaluate(() => room.simulateScenario("signal-reconnect"));
      }
      for (const page of [alice, bob]) await hears(page, "reconnected", {}, 30);
      assert.equal(await bob.evaluate(() => room.localParticipant.sid), sid);
      await flows(bob, "alice", "camera");
      await flows(bob, "alice", "microphone");
      const lost = await bob.evaluate(() => heard.filter((heard) => heard.event === "trackUnsubscribed"));
      assert.deepEqual(lost, [], "no subscription is lost");
    });

    test("a screen is shared beside the camera, and taken away", async () => {
      await alice.evaluate(() => room.localParticipant.setScreenShareEnabled(true));
      await hears(bob, "trackSubscribed", { source: "screen_share", from: "alice" });
      await show(bob, "alice", 1280, 720, "screen_share");
      await flows(bob, "alice", "screen_share");
      await flows(bob, "alice", "camera");
      await bob.evaluate(() => (heard.length = 0));
      await alice.evaluate(() => room.localParticipant.setScreenShareEnabled(false));
      await hears(bob, "trackUnsubscribed", { kind: "video", from: "alice" });
    });

    test("who has to join anew publishes and watches again", async () => {
      for (const page of [alice, bob]) {
        for (const one of [alice, bob]) await one.evaluate(() => (heard.length = 0));
        await page.evaluate(() => room.simulateScenario("full-reconnect"));
        await hears(page, "reconnected", {}, 30);
        await hears(bob, "trackSubscribed", { source: "camera", from: "alice" });
        await hears(bob, "trackSubscribed", { source: "microphone", from: "alice" });
        await show(bob, "alice", 1280, 720);
        await flows(bob, "alice", "camera");
        await flows(bob, "alice", "microphone");
      }
    });

    test("an application sees, mutes and removes", async () => {
      const list = await admin(server, "ListParticipants", { room }, { roomAdmin: true, room });
      assert.deepEqual(list.body.participants.map((participant) => participant.identity).sort(), ["alice", "bob"]);
      const { sid } = list.body.participants.find((participant) => participant.identity === "alice").tracks.find((track) => track.source === "MICROPHONE");
      await admin(server, "MutePublishedTrack", { room, identity: "alice", track_sid: sid, muted: true }, { roomAdmin: true, room });
      await until("the microphone is muted", 30, () => alice.evaluate(() => room.localParticipant.getTrackPublication("microphone").isMuted));
      await alice.evaluate(() => (heard.length = 0));
      await admin(server, "RemoveParticipant", { room, identity: "alice" }, { roomAdmin: true, room });
      await hears(alice, "disconnected");
      await hears(alice, "closed", { wasClean: true });
      await hears(bob, "participantDisconnected", { identity: "alice" });
    });
  });
}

test("five meet in one room, by one peer connection and by two, the fifth later than the others", async () => {
  const names = ["one", "two", "three", "four", "five"];
  const pages = new Map();
  const join = async (name, index) => {
    const singlePeerConnection = index % 2 === 0;
    const page = await enter(viewerBrowser, server, "five", name, { options: { singlePeerConnection, dynacast: true } });
    pages.set(name, page);
    // Ten encoders and decoders of pictures share the machine.
    const resolution = { width: 320, height: 180, frameRate: 5 };
    await page.evaluate(async (resolution) => {
      await room.localParticipant.setMicrophoneEnabled(true);
      await room.localParticipant.setCameraEnabled(true, { resolution }, { videoSimulcastLayers: [] });
    }, resolution);
  };
  const allSee = () =>
    Promise.all(
      [...pages].flatMap(([name, page]) =>
        [...pages.keys()].filter((other) => other !== name).flatMap((other) => ["camera", "microphone"].map((source) => flows(page, other, source, 120))),
      ),
    );
  await Promise.all(names.slice(0, 4).map(join));
  await allSee();
  await join(names[4], 4);
  await allSee();
  for (const page of pages.values()) await page.close();
});

test("who may not come in is told why", async () => {
  for (const path of ["/rtc/validate", "/rtc/v1/validate"]) {
    const answer = await fetch(`${server.url}${path}?access_token=${token("room", "mallory", {}, "another")}`);
    assert.equal(answer.status, 401);
    assert.equal(answer.headers.get("access-control-allow-origin"), "*");
    assert.match(await answer.text(), /not signed with its API key's secret/);
  }
});
