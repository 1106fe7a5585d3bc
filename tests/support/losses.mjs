// Where datagrams are lost: in the kernel, or in the server.

import { readFile } from "node:fs/promises";

/** A message that the kernel drops is up to so many datagrams (UDP GSO). */
const SEGMENTS_MAX = 64;

/** How many datagrams, at most, have found no room in sockets or on their way over loopback (proc_pid_net(5)). */
export async function dropsMax() {
  const [snmp, devices] = await Promise.all(["snmp", "dev"].map((name) => readFile(`/proc/self/net/${name}`, "utf8")));
  const [names, numbers] = snmp.split("\n").filter((line) => line.startsWith("Udp:")).map((line) => line.split(/\s+/));
  const loopback = /^\s*lo:(.*)$/m.exec(devices)[1].trim().split(/\s+/);
  return SEGMENTS_MAX * (Number(numbers[names.indexOf("RcvbufErrors")]) + Number(loopback[3]));
}

/** Reasons for which a worker drops media that it should have forwarded. */
const LOSSES = /^millrace_(?:worker_dropped_(?:queue|socket)_full_total|rooms_dropped_total)\{worker="\d+"(?:,reason="(.*)")?\} (\d+)$/;
const REASONS = [undefined, "not_authentic", "malformed_srtp", "malformed_rtp", "behind_history", "datagram_too_large", "mailbox_full"];

/** How many packets of media the server itself has lost. */
export async function lossesOf(url) {
  const page = await fetch(`${url}/metrics`).then((answer) => answer.text());
  const rows = page.split("\n").map((line) => LOSSES.exec(line)).filter(Boolean);
  if (rows.length < REASONS.length) throw new Error("the server's metrics have other names");
  return rows.filter(([, reason]) => REASONS.includes(reason)).reduce((sum, [, , count]) => sum + Number(count), 0);
}
