// Runs in a network namespace of its own: a server with a relay, and a Chromium that is left no other way.
//
//   node relayed.mjs '{"uri": "turn:10.77.0.1:3478?transport=udp", "settings": ["relay.listen=10.77.0.1:3478"]}'
//
// Chromium makes relayed candidates for addresses that are not loopback only, so there is an interface with one. Prints what
// two calls were like as a line of JSON: one between two pages' connections, one with the server's own rooms.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:tls";
import { inbound, launch, open, playing, publish, until } from "./browser.mjs";
import { serve } from "./server.mjs";

const { uri, settings } = JSON.parse(process.argv[2]);
const ip = (...words) => execFileSync("ip", words, { stdio: ["ignore", "inherit", "inherit"] });
ip("link", "set", "lo", "up");
ip("link", "add", "relay0", "type", "veth", "peer", "name", "relay1");
ip("address", "add", "10.77.0.1/24", "dev", "relay0");
ip("link", "set", "relay0", "up");
ip("link", "set", "relay1", "up");

const all = ["workers.count=2", "relay.users=alice:open-sesame", ...settings];
const server = await serve(...all.flatMap((setting) => ["--set", setting]));
// It has signed its certificate itself: Chromium is told to take that very key.
const browser = await launch(...(uri.startsWith("turns:") ? [`--ignore-certificate-errors-spki-list=${await keyOf(uri)}`] : []));
try {
  const configuration = {
    iceServers: [{ urls: [uri], username: "alice", credential: "open-sesame" }],
    iceTransportPolicy: "relay",
  };
  // The page knows nothing of relays.
  await browser.context.addInitScript((configuration) => {
    const Native = window.RTCPeerConnection;
    window.RTCPeerConnection = class extends Native {
      constructor(given) {
        super({ ...given, ...configuration });
      }
    };
  }, configuration);
  const page = await open(browser.context, `${server.url}/`);
  const call = await page.evaluate(makeCall);
  await publish(page, { name: "relayed", simulcast: false, width: 640, height: 360 });
  const viewer = await open(browser.context, `${server.url}/?watch=relayed`);
  await playing(viewer, 30);
  await until("a hundred frames", 60, async () => (await inbound(viewer, "video")).framesDecoded >= 100);
  const rooms = await viewer.evaluate(async () => {
    const report = await window.millrace.watcher.pc.getStats();
    const pair = [...report.values()].find((entry) => entry.type === "candidate-pair" && entry.nominated);
    const { candidateType, relayProtocol } = report.get(pair.localCandidateId);
    return { candidateType, relayProtocol };
  });
  const allocations = await (await fetch(`${server.url}/api/relay/allocations`)).json();
  console.log(JSON.stringify({ call, rooms, transports: [...new Set(allocations.map((each) => each.transport))] }));
} finally {
  await browser.close();
  await server.stop();
}

/** The hash of the public key of who listens there, as Chromium has it. */
async function keyOf(uri) {
  const [, host, port] = uri.match(/^turns:([^:]+):(\d+)/);
  const socket = connect({ host, port, rejectUnauthorized: false });
  await once(socket, "secureConnect");
  const key = socket.getPeerX509Certificate().publicKey.export({ type: "spki", format: "der" });
  socket.destroy();
  return createHash("sha256").update(key).digest("base64");
}

/** In the page: a picture from one connection to the other, until a hundred frames are decoded. */
async function makeCall() {
  const [one, other] = [new RTCPeerConnection(), new RTCPeerConnection()];
  one.onicecandidate = ({ candidate }) => candidate && other.addIceCandidate(candidate);
  other.onicecandidate = ({ candidate }) => candidate && one.addIceCandidate(candidate);
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d");
  const draw = setInterval(() => {
    context.fillStyle = `hsl(${performance.now() / 10} 80% 50%)`;
    context.fillRect(0, 0, canvas.width, canvas.height);
  }, 30);
  one.addTrack(canvas.captureStream(30).getTracks()[0]);
  await one.setLocalDescription();
  await other.setRemoteDescription(one.localDescription);
  await other.setLocalDescription();
  await one.setRemoteDescription(other.localDescription);
  const end = performance.now() + 60_000;
  for (;;) {
    const report = [...(await other.getStats()).values()];
    const frames = report.find((entry) => entry.type === "inbound-rtp")?.framesDecoded ?? 0;
    const pair = report.find((entry) => entry.type === "candidate-pair" && entry.nominated);
    if (frames >= 100 || performance.now() > end) {
      const types = [pair?.localCandidateId, pair?.remoteCandidateId].map(
        (id) => report.find((entry) => entry.id === id)?.candidateType,
      );
      clearInterval(draw);
      one.close();
      other.close();
      return { frames, types };
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
