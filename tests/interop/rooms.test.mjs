// Firefox and Chromium in one room of LiveKit's protocol, by its own client as the server's page has it.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { serve } from "../browser/server.mjs";
import { until } from "../support/page.mjs";
import { launch, open } from "./browser.mjs";
import { stacks } from "./stacks.mjs";

const skip = ["chromium", "firefox"].some((name) => !stacks.some((stack) => stack.name === name)) && "a browser is not there";
let server;
const browsers = {};

before(async () => {
  if (skip) return;
  server = await serve();
  for (const name of ["firefox", "chromium"]) browsers[name] = await launch(name);
});

after(async () => {
  for (const browser of Object.values(browsers)) await browser.close();
  await server?.stop();
});

for (const [mode, singlePeerConnection] of [["one peer connection", true], ["two peer connections", false]]) {
  describe(`by ${mode}`, { skip }, () => {
    const pages = {};

    test("both join and publish", async () => {
      for (const name of ["firefox", "chromium"]) {
        pages[name] = await open(browsers[name].browser, `${server.url}/room/any`);
        await join(pages[name], `room-${singlePeerConnection}`, name, singlePeerConnection);
      }
    });

    for (const [who, whom] of [["firefox", "chromium"], ["chromium", "firefox"]]) {
      test(`${who} sees and hears ${whom}`, async () => {
        for (const source of ["camera", "microphone"]) {
          const before = await received(pages[who], whom, source);
          await until(`${source} of ${whom}`, 30, async () => (await received(pages[who], whom, source)) > before + 20);
        }
      });
    }

    test("who mutes is muted for the other", async () => {
      for (const [who, whom] of [["firefox", "chromium"], ["chromium", "firefox"]]) {
        await pages[whom].evaluate(() => window.room.localParticipant.setMicrophoneEnabled(false));
        const isMuted = () => pages[who].evaluate((whom) => window.room.remoteParticipants.get(whom).getTrackPublication("microphone").isMuted, whom);
        await until("muted", 10, isMuted);
      }
    });

    test("what one says the other reads", async () => {
      for (const [from, to] of [["firefox", "chromium"], ["chromium", "firefox"]]) {
        await pages[from].evaluate((text) => window.room.localParticipant.sendText(text, { topic: "lk.chat" }), `from ${from}`);
        await until("the text", 10, () => pages[to].evaluate((text) => window.texts.includes(text), `from ${from}`));
      }
    });

    test("who leaves is gone", async () => {
      await pages.firefox.evaluate(() => window.room.disconnect());
      await until("nobody", 10, () => pages.chromium.evaluate(() => window.room.remoteParticipants.size === 0));
      for (const page of Object.values(pages)) await page.close();
    });
  });
}

test("Firefox meets others on the page of a room", { skip }, async () => {
  const pages = {};
  for (const name of ["firefox", "chromium"]) {
    pages[name] = await open(browsers[name].browser, `${server.url}/room/page`);
    const devices = () => ["camera", "microphone"].every((id) => document.getElementById(id).value !== "");
    await until("camera and microphone", 20, () => pages[name].evaluate(devices));
    await pages[name].evaluate((name) => {
      document.getElementById("name").value = name;
      document.getElementById("join").requestSubmit();
    }, name);
  }
  for (const [who, whom] of [["firefox", "chromium"], ["chromium", "firefox"]]) {
    const shown = (whom) => [...document.querySelectorAll(".tile")].some((tile) => tile.textContent.includes(whom) && tile.querySelector("video").videoWidth > 0);
    await until(`${who} shows ${whom}`, 30, () => pages[who].evaluate(shown, whom));
  }
  const problems = await pages.firefox.evaluate(() => document.getElementById("notice").textContent);
  assert.equal(problems, "");
});

/** Joins by the client that the page has, and publishes camera and microphone. */
function join(page, room, identity, singlePeerConnection) {
  return page.evaluate(
    async ({ room, identity, singlePeerConnection }) => {
      const { Room } = await import("/livekit.js");
      const headers = { "content-type": "application/json" };
      const answer = await fetch("/api/livekit/tokens", { method: "POST", headers, body: JSON.stringify({ room, identity }) });
      const { token } = await answer.json();
      window.room = new Room({ singlePeerConnection });
      window.texts = [];
      window.room.registerTextStreamHandler("lk.chat", async (reader) => window.texts.push(await reader.readAll()));
      await window.room.connect(location.origin.replace("http", "ws"), token);
      await window.room.localParticipant.enableCameraAndMicrophone();
    },
    { room, identity, singlePeerConnection },
  );
}

/** Frames, or audio packets, that have come of somebody's source. */
function received(page, whom, source) {
  return page.evaluate(
    async ({ whom, source }) => {
      const { track } = window.room.remoteParticipants.get(whom)?.getTrackPublication(source) ?? {};
      const report = await track?.receiver?.getStats();
      const entry = [...(report?.values() ?? [])].find((entry) => entry.type === "inbound-rtp");
      return (source === "microphone" ? entry?.packetsReceived : entry?.framesDecoded) ?? 0;
    },
    { whom, source },
  );
}
