// What the kernel does with datagrams of this network, all processes' together (proc_pid_net(5)).

import { readFile } from "node:fs/promises";

/** A message that the kernel drops is up to so many datagrams (UDP GSO). */
const SEGMENTS_MAX = 64;

/** How many datagrams, at most, have found no room in sockets or on their way over loopback. */
export async function dropsMax() {
  const [snmp, devices] = await Promise.all(["snmp", "dev"].map((name) => readFile(`/proc/self/net/${name}`, "utf8")));
  const [names, numbers] = snmp.split("\n").filter((line) => line.startsWith("Udp:")).map((line) => line.split(/\s+/));
  const loopback = /^\s*lo:(.*)$/m.exec(devices)[1].trim().split(/\s+/);
  return SEGMENTS_MAX * (Number(numbers[names.indexOf("RcvbufErrors")]) + Number(loopback[3]));
}
