// Each stack publishes, and each watches what every stack publishes: decoded frames, or whole ones where a stack has no
// decoder; and the server loses nothing.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { serve } from "../browser/server.mjs";
import { dropsMax, lossesOf } from "../support/losses.mjs";
import { AUDIO_PACKETS, until } from "./peer.mjs";
import { Peer, stacks } from "./stacks.mjs";

/** Two seconds of video, or three of a busy encoder's. */
const FRAMES = 60;
/** Enough for a browser to start beside other encoders on one busy core; most need three seconds. */
const SECONDS = 120;
/** Beside what the kernel drops, stacks that get no time lose packets between their own threads and processes. */
const LOST_MAX = 0.1;

const streams = stacks.flatMap(({ name, publishes, ...stack }) =>
  publishes.map((codec) => ({ publisher: name, codec, name: `${name}-${codec.toLowerCase()}`, stack: { name, ...stack } })),
);
const whep = (stream) => `${server.url}/whep/${stream.name}`;
let server, dropsBefore;

before(async () => {
  dropsBefore = await dropsMax();
  server = await serve();
});

after(() => server?.stop());

describe("publishing", () => {
  for (const stream of streams) {
    test(`${stream.publisher} publishes ${stream.codec}`, async () => {
      stream.peer = new Peer(stream.stack, "publish", `${server.url}/whip/${stream.name}`, stream.codec);
      assert.ok((await stream.peer.line(SECONDS)).publishing);
      await until("the stream is live", SECONDS, async () => {
        const live = await fetch(`${server.url}/api/streams`).then((answer) => answer.json());
        return live.some((one) => one.name === stream.name && one.state === "live");
      });
    });
  }
});

for (const stack of stacks) {
  describe(`${stack.name} watches`, () => {
    let peer, received;

    before(async () => {
      peer = new Peer(stack, "watch", FRAMES, ...streams.map(whep));
      received = (await peer.line(SECONDS, 10)).received;
    });

    after(() => peer?.end());

    for (const stream of streams) {
      const got = () => received.find((one) => one.url === whep(stream));
      if (!stack.takes.includes(stream.codec)) {
        test(`not ${stream.publisher}'s ${stream.codec}, which it does not offer to take`, () => assert.equal(got().refused, 406));
        continue;
      }
      test(`${stream.publisher}'s ${stream.codec}`, async () => {
        const { refused, video, audio } = got();
        assert.equal(refused, undefined);
        assert.ok(video.frames >= FRAMES, `${video.frames} frames, ${audio.packets} audio packets\n${peer.log}`);
        assert.ok(audio.packets >= AUDIO_PACKETS, `${audio.packets} audio packets\n${peer.log}`);
        const [lost, packets] = [video.lost + audio.lost, video.packets + audio.packets];
        const dropped = (await dropsMax()) - dropsBefore;
        assert.ok(lost <= dropped + LOST_MAX * packets, `${lost} packets are missing, ${packets} are there, ${dropped} dropped`);
      });
    }
  });
}

describe("at the end", () => {
  test("the server has lost nothing", async () => assert.equal(await lossesOf(server.url), 0));

  test("each publisher is still there, and ends when asked to", async () => {
    for (const { peer } of streams) assert.equal(peer.child.exitCode, null, peer.log);
    await Promise.all(streams.map(({ peer }) => peer.end()));
  });
});

after(() => Promise.all(streams.map(({ peer }) => peer?.end())));
