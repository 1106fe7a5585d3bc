// Rooms of LiveKit's protocol, joined by its own client for browsers, by one peer connection and by two.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { launch, until } from "./browser.mjs";
import { admin, enter, flows, hears, received, show, token } from "./livekit.mjs";
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
      await flows(bob, "alice", "video");
      await flows(bob, "alice", "audio");
    });

    test("who speaks is told", () => hears(bob, "activeSpeakersChanged", { speakers: ["alice"] }));

    test("the layer follows the size of the element", async () => {
      await until("the whole picture", 40, async () => (await received(bob, "alice", "video")).frameWidth === 1280);
      await show(bob, "alice", 160, 90);
      await until("a small picture", 20, async () => (await received(bob, "alice", "video")).frameWidth === 320);
      await show(bob, "alice", 1280, 720);
      await until("the whole picture again", 40, async () => (await received(bob, "alice", "video")).frameWidth === 1280);
    });

    test("muted and unmuted", async () => {
      for (const [kind, set] of [["audio", "setMicrophoneEnabled"], ["video", "setCameraEnabled"]]) {
        await alice.evaluate((set) => room.localParticipant[set](false), set);
        await hears(bob, "trackMuted", { kind, from: "alice" });
        await alice.evaluate((set) => room.localParticipant[set](true), set);
        await hears(bob, "trackUnmuted", { kind, from: "alice" });
        await flows(bob, "alice", kind);
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
      await flows(alice, "bob", "audio");
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
      await flows(bob, "alice", "video");
      await flows(bob, "alice", "audio");
      const lost = await bob.evaluate(() => heard.filter((heard) => heard.event === "trackUnsubscribed"));
      assert.deepEqual(lost, [], "no subscription is lost");
    });

    test("an application sees, mutes and removes", async () => {
      const list = await admin(server, "ListParticipants", { room }, { roomAdmin: true, room });
      assert.deepEqual(list.body.participants.map((participant) => participant.identity).sort(), ["alice", "bob"]);
      const { sid } = list.body.participants.find((participant) => participant.identity === "alice").tracks.find((track) => track.source === "MICROPHONE");
      await admin(server, "MutePublishedTrack", { room, identity: "alice", track_sid: sid, muted: true }, { roomAdmin: true, room });
      await until("the microphone is muted", 10, () => alice.evaluate(() => room.localParticipant.getTrackPublication("microphone").isMuted));
      await admin(server, "RemoveParticipant", { room, identity: "alice" }, { roomAdmin: true, room });
      await hears(alice, "disconnected");
      await hears(bob, "participantDisconnected", { identity: "alice" });
    });
  });
}

test("by one peer connection and by two they meet in one room", async () => {
  const pages = [];
  for (const [identity, singlePeerConnection] of [["one", true], ["two", false], ["three", true]]) {
    pages.push(await enter(viewerBrowser, server, "mixed", identity, { options: { singlePeerConnection } }));
    await pages.at(-1).evaluate(() => room.localParticipant.setMicrophoneEnabled(true));
  }
  const names = ["one", "two", "three"];
  for (const [index, page] of pages.entries()) {
    for (const other of names.filter((name) => name !== names[index])) await flows(page, other, "audio");
  }
  for (const page of pages) await page.close();
});

test("who may not come in is told why", async () => {
  for (const path of ["/rtc/validate", "/rtc/v1/validate"]) {
    const answer = await fetch(`${server.url}${path}?access_token=${token("room", "mallory", {}, "another")}`);
    assert.equal(answer.status, 401);
    assert.equal(answer.headers.get("access-control-allow-origin"), "*");
    assert.match(await answer.text(), /not signed with its API key's secret/);
  }
});
