// Chromium behind the relay alone: a call between two of its connections, and the rooms of the relay's own server.

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const FOLDER = fileURLToPath(new URL(".", import.meta.url));
const NAMESPACE = ["--net", ...(process.getuid() === 0 ? [] : ["--map-root-user"])];

/** Why there is no network of our own to be had, if so. */
function lacks() {
  try {
    execFileSync("unshare", [...NAMESPACE, "ip", "link", "add", "relay0", "type", "veth", "peer", "name", "relay1"], { stdio: "ignore" });
    return false;
  } catch {
    return "a network of its own needs unshare, ip and veth";
  }
}

const skip = lacks();
const settings = [
  "relay.listen=10.77.0.1:3478",
  "relay.tcp_listen=10.77.0.1:3478",
  "relay.tls_listen=10.77.0.1:5349",
  "tls.self_signed=true",
];
const uris = {
  udp: "turn:10.77.0.1:3478?transport=udp",
  tcp: "turn:10.77.0.1:3478?transport=tcp",
  tls: "turns:10.77.0.1:5349?transport=tcp",
};
for (const [protocol, uri] of Object.entries(uris)) {
  test(`a call and the rooms through the relay, ${protocol} to it`, { skip }, async () => {
    const run = [...NAMESPACE, "node", "relayed.mjs", JSON.stringify({ uri, settings })];
    const { stdout } = await promisify(execFile)("unshare", run, { cwd: FOLDER, timeout: 240_000 });
    const { call, rooms, transports } = JSON.parse(stdout);
    assert.ok(call.frames >= 100, `${call.frames} frames of the call`);
    assert.deepEqual(call.types, ["relay", "relay"]);
    assert.deepEqual(rooms, { candidateType: "relay", relayProtocol: protocol });
    assert.deepEqual(transports, [protocol]);
  });
}
