// Sound in Chromium: several tracks that arrive apart, and Opus with redundancy (RED) for who prefers it.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { launch, open, until } from "./browser.mjs";
import { serve } from "./server.mjs";

let server, browser, publisher, viewer;

before(async () => {
  server = await serve();
  browser = await launch();
  publisher = await open(browser.context, `${server.url}/`);
  viewer = await open(browser.context, `${server.url}/`);
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Publishes a tone of each frequency; `codec` is the MIME type to be offered first. */
async function publishTones(name, frequencies, codec) {
  await publisher.evaluate(
    async ({ name, frequencies, codec }) => {
      const context = new AudioContext();
      await context.resume();
      const pc = new RTCPeerConnection();
      for (const frequency of frequencies) {
        const oscillator = new OscillatorNode(context, { frequency });
        const sink = new MediaStreamAudioDestinationNode(context);
        oscillator.connect(sink);
        oscillator.start();
        const transceiver = pc.addTransceiver(sink.stream.getAudioTracks()[0], { direction: "sendonly", streams: [sink.stream] });
        const codecs = RTCRtpSender.getCapabilities("audio").codecs;
        if (codec) transceiver.setCodecPreferences(codecs.toSorted((a, b) => (b.mimeType === codec) - (a.mimeType === codec)));
      }
      await pc.setLocalDescription();
      const headers = { "Content-Type": "application/sdp" };
      const response = await fetch(`/whip/${name}`, { method: "POST", headers, body: pc.localDescription.sdp });
      await pc.setRemoteDescription({ type: "answer", sdp: await response.text() });
      (window.published ??= {})[name] = pc;
    },
    { name, frequencies, codec },
  );
  await until("the publisher is connected", 30, () => publisher.evaluate((name) => window.published[name].connectionState === "connected", name));
}

/**
 * Watches with so many sections for sound. Returns for each track its name in the answer, which the page finds by the MID, and
 * the id of its media stream.
 */
async function watchTones(endpoint, count, codec) {
  return viewer.evaluate(
    async ({ endpoint, count, codec }) => {
      window.watched?.close();
      const pc = (window.watched = new RTCPeerConnection());
      window.context ??= new AudioContext();
      await window.context.resume();
      const tracks = [];
      window.analysers = [];
      pc.addEventListener("track", ({ track, streams, transceiver }) => {
        const section = pc.remoteDescription.sdp.split(/^m=/m).find((section) => section.includes(`a=mid:${transceiver.mid}\r\n`));
        tracks.push([/^a=msid:\S+ (\S+)/m.exec(section)[1], streams[0]?.id]);
        const mediaStream = new MediaStream([track]);
        // Chromium hands the sound of a peer on only where an element plays it.
        const audio = Object.assign(new Audio(), { srcObject: mediaStream, muted: true });
        void audio.play();
        const analyser = new AnalyserNode(window.context, { fftSize: 8192 });
        new MediaStreamAudioSourceNode(window.context, { mediaStream }).connect(analyser);
        window.analysers.push({ analyser, audio });
      });
      const codecs = RTCRtpReceiver.getCapabilities("audio").codecs;
      for (let section = 0; section < count; section++) {
        const transceiver = pc.addTransceiver("audio", { direction: "recvonly" });
        if (codec) transceiver.setCodecPreferences(codecs.toSorted((a, b) => (b.mimeType === codec) - (a.mimeType === codec)));
      }
      await pc.setLocalDescription();
      const headers = { "Content-Type": "application/sdp" };
      const response = await fetch(`/whep/${endpoint}`, { method: "POST", headers, body: pc.localDescription.sdp });
      await pc.setRemoteDescription({ type: "answer", sdp: await response.text() });
      return tracks;
    },
    { endpoint, count, codec },
  );
}

/** Waits until each track is heard as the tone of its frequency. */
async function hearsTones(frequencies) {
  let loudest;
  await until(`tones of ${frequencies} Hz are heard`, 30, async () => {
    loudest = await viewer.evaluate(() =>
      window.analysers.map(({ analyser }) => {
        const levels = new Float32Array(analyser.frequencyBinCount);
        analyser.getFloatFrequencyData(levels);
        const peak = levels.indexOf(Math.max(...levels));
        return levels[peak] > -60 ? (peak * analyser.context.sampleRate) / analyser.fftSize : 0;
      }),
    );
    return loudest.length === frequencies.length && loudest.every((heard, index) => Math.abs(heard - frequencies[index]) < 15);
  }).catch((error) => assert.fail(`${error.message}: ${loudest}`));
}

/** The codec in which a publisher is to send: the first of the answer. Its statistics name Opus, whatever that is wrapped in. */
async function answeredCodec(name) {
  return publisher.evaluate((name) => {
    const { sdp } = window.published[name].remoteDescription;
    const [, first] = sdp.match(/^m=audio \d+ \S+ (\d+)/m);
    return sdp.match(new RegExp(`^a=rtpmap:${first} (\\w+)/`, "m"))[1];
  }, name);
}

/** What Chromium has counted of the sound. As the codec it names the decoder's, which is Opus. */
async function heard() {
  return viewer.evaluate(async () => {
    const report = await window.watched.getStats();
    return [...report.values()].find((entry) => entry.type === "inbound-rtp");
  });
}

/** Waits until a hundred frames have come that Chromium had already, as they do with redundancy only. */
async function hearsRepeats() {
  await until("a hundred frames have come again", 30, async () => (await heard())?.packetsDiscarded >= 100);
}

describe("two tones", () => {
  before(() => publishTones("two", [440, 880]));

  test("arrive as two tracks with ids and media streams of their own, the same each time", async () => {
    for (let time = 0; time < 2; time++) {
      assert.deepEqual(await watchTones("two", 2), [
        ["audio0", "two"],
        ["audio1", "1.two"],
      ]);
      await hearsTones([440, 880]);
    }
  });

  test("a viewer with one section gets the first, or the one that it asks for", async () => {
    assert.deepEqual(await watchTones("two", 1), [["audio0", "two"]]);
    await hearsTones([440]);
    assert.deepEqual(await watchTones("two?track=audio1", 1), [["audio1", "two"]]);
    await hearsTones([880]);
  });
});

describe("redundancy", () => {
  before(async () => {
    await publishTones("plain", [600]);
    await publishTones("redundant", [700], "audio/red");
  });

  test("who prefers it gets it, made from plain Opus", async () => {
    await watchTones("plain", 1, "audio/red");
    await hearsTones([600]);
    await hearsRepeats();
  });

  test("a publisher's goes to who prefers it, and others get plain Opus", async () => {
    await watchTones("redundant", 1, "audio/red");
    await hearsTones([700]);
    await hearsRepeats();
    await watchTones("redundant", 1);
    await hearsTones([700]);
    await until("two hundred packets have come", 30, async () => (await heard())?.packetsReceived >= 200);
    const { packetsDiscarded } = await heard();
    assert.ok(packetsDiscarded < 50, `${packetsDiscarded} plain packets repeat something`);
    assert.deepEqual([await answeredCodec("plain"), await answeredCodec("redundant")], ["opus", "red"]);
  });
});
