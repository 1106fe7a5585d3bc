// Runs in a network namespace of its own: a server, and viewers on a network that drops.
//
//   node inside.mjs '{"rule": "…", "simulcast": false, "dropSeconds": 8}'
//
// The rule (nftables, of the input hook) holds for a moment while viewers join, and again when the load generator counts; it is
// lifted before the end, so that what can be repaired is repaired by then. Prints the load generator's report as a line of JSON, and
// what the server dropped.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { BINARY, serve } from "../browser/server.mjs";

const VIEWERS = 10;
/** The first flights of handshakes meet the rule. */
const JOIN_SECONDS = 1.5;
/** What a lost flight of a handshake waits for, one and two seconds, and some. */
const WARM_UP_SECONDS = 6;
/** Longer than anybody asks again for what is lost. */
const SETTLE_SECONDS = 3;

const { rule, simulcast, dropSeconds } = JSON.parse(process.argv[2]);
const nft = (...words) => execFileSync("nft", [words.join(" ")], { stdio: ["ignore", "inherit", "inherit"] });
const drop = () => nft("add rule inet lossy input", rule);
const lift = () => nft("flush chain inet lossy input");

execFileSync("ip", ["link", "set", "lo", "up"]);
nft("add table inet lossy");
nft("add chain inet lossy input { type filter hook input priority 0; }");
nft("add set inet lossy viewers { type ipv4_addr; flags dynamic; }");
// The namespace has no other ports.
const server = await serve("--set", "workers.count=1", "--set", "workers.udp_port=5000");
try {
  drop();
  const words = ["load", "rooms", "--json", "--marks", "--url", server.url, "--sample", "1", "--subscribers", VIEWERS];
  const times = ["--warm-up", WARM_UP_SECONDS, "--seconds", dropSeconds + SETTLE_SECONDS];
  const load = spawn(BINARY, [...words, ...times, ...(simulcast ? ["--simulcast"] : [])], { stdio: ["ignore", "pipe", "inherit"] });
  void sleep(1000 * JOIN_SECONDS).then(lift);
  let report;
  for await (const line of createInterface({ input: load.stdout })) {
    const said = JSON.parse(line);
    if (said.mark === "begin") {
      drop();
      void sleep(1000 * dropSeconds).then(lift);
    } else if (!said.mark) {
      report = said;
    }
  }
  if (load.exitCode === null) await once(load, "exit");
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  const dropped = [...metrics.matchAll(/^millrace_rooms_dropped_total\{.*reason="(\w+)"\} ([1-9]\d*)$/gm)];
  console.log(JSON.stringify({ ...report, dropped: Object.fromEntries(dropped.map(([, why, count]) => [why, +count])) }));
} finally {
  await server.stop();
}
