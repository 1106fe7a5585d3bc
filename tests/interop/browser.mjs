// Chromium or Firefox, as they are: one tab publishes what the page at `/` publishes, or watches by plain WHEP.
//
//   node browser.mjs chromium|firefox publish URL CODEC       until its input ends
//   node browser.mjs chromium|firefox watch FRAMES URL…       until each has so many frames, or its input ends

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import puppeteer from "puppeteer-core";
import { CHROMIUM_FLAGS, publish } from "../support/page.mjs";
import { AUDIO_PACKETS, inputEnded, say, until } from "./peer.mjs";

/** Firefox leaves loopback out of its candidates, and plays nothing unasked, unless told otherwise. */
const FIREFOX_PREFERENCES = {
  "media.peerconnection.ice.loopback": true,
  "media.peerconnection.ice.obfuscate_host_addresses": false,
  "media.autoplay.default": 0,
  "media.gmp-manager.updateEnabled": false,
  // A camera and a microphone that are none.
  "media.navigator.streams.fake": true,
  "media.navigator.permission.disabled": true,
};

/** The same for Chromium. */
const FAKE_DEVICES = ["--use-fake-device-for-media-stream=fps=10", "--use-fake-ui-for-media-stream"];

/** A fresh browser with one tab; `close` ends it and removes its profile. */
export async function launch(kind) {
  const profile = await mkdtemp(join(tmpdir(), `millrace-${kind}-`));
  const options =
    kind === "firefox"
      ? { executablePath: process.env.FIREFOX ?? "/usr/bin/firefox-esr", extraPrefsFirefox: FIREFOX_PREFERENCES }
      : { executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: [...CHROMIUM_FLAGS, ...FAKE_DEVICES] };
  // The home is a place of its own, too: Firefox writes there beside its profile.
  const env = { ...process.env, HOME: profile };
  const browser = await puppeteer.launch({ browser: kind === "firefox" ? kind : "chrome", userDataDir: join(profile, "profile"), env, ...options });
  const close = async () => {
    await browser.close();
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  };
  return { browser, close };
}

/** A tab at `url`; what goes wrong in it is printed. */
export async function open(browser, url) {
  const page = await browser.newPage();
  page.on("pageerror", (error) => console.error(`page: ${error.message}`));
  await page.goto(url);
  return page;
}

/** Begins to watch in the page, each stream by a connection of its own. */
async function watch(page, urls) {
  await page.evaluate(async (urls) => {
    window.peers = new Map();
    for (const url of urls) {
      const pc = new RTCPeerConnection();
      for (const kind of ["video", "audio"]) {
        const { receiver } = pc.addTransceiver(kind, { direction: "recvonly" });
        const element = document.body.appendChild(document.createElement(kind));
        element.srcObject = new MediaStream([receiver.track]);
        element.muted = true;
        void element.play().catch(() => undefined);
      }
      await pc.setLocalDescription();
      const headers = { "content-type": "application/sdp" };
      const answer = await fetch(url, { method: "POST", headers, body: pc.localDescription.sdp });
      if (!answer.ok) {
        window.peers.set(url, { refused: answer.status });
        continue;
      }
      await pc.setRemoteDescription({ type: "answer", sdp: await answer.text() });
      window.peers.set(url, { pc, location: new URL(answer.headers.get("location"), url).href });
    }
  }, urls);
}

/** What each connection has got until now. */
function received(page) {
  return page.evaluate(async () => {
    const all = [];
    for (const [url, { pc, refused }] of window.peers) {
      const result = { url, video: { frames: 0, packets: 0, lost: 0 }, audio: { packets: 0, lost: 0 } };
      if (refused) result.refused = refused;
      const report = await pc?.getStats();
      for (const entry of report?.values() ?? []) {
        if (entry.type !== "inbound-rtp") continue;
        const codec = report.get(entry.codecId)?.mimeType.split("/")[1];
        const { packetsReceived: packets, packetsLost: lost, framesDecoded: frames } = entry;
        result[entry.kind] = entry.kind === "video" ? { codec, packets, lost, frames } : { codec, packets, lost };
      }
      all.push(result);
    }
    return all;
  });
}

async function main([kind, role, ...rest]) {
  const ended = inputEnded();
  const { browser, close } = await launch(kind);
  try {
    if (role === "publish") {
      const [url, codec] = rest;
      const page = await open(browser, new URL("/", url).href);
      const name = decodeURIComponent(new URL(url).pathname.split("/").pop());
      await publish(page, { name, token: "", source: "picture", simulcast: false, codec, width: 320, height: 180 });
      say({ publishing: url });
      await ended;
      await page.evaluate(() => window.millrace.publisher.stop());
    } else {
      const [frames, ...urls] = rest;
      const page = await open(browser, new URL("/", urls[0]).href);
      await watch(page, urls);
      const enough = (one) => one.refused || (one.video.frames >= frames && one.audio.packets >= AUDIO_PACKETS);
      await until("", Infinity, async () => (await received(page)).every(enough), ended);
      say({ received: await received(page) });
    }
  } finally {
    await close();
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await main(process.argv.slice(2));
