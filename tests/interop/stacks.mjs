// The WebRTC stacks that are tried, and how their programs are run. Each is `PROGRAM publish URL CODEC` until its input
// ends, which prints a line when it is connected; and `PROGRAM watch FRAMES URL…`, which prints a line with what it got of
// each stream when that is enough, or when its input ends.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL(".", import.meta.url));

/** `publishes` and `takes` are video codecs; audio is Opus everywhere. */
const STACKS = {
  chromium: { program: ["node", "browser.mjs", "chromium"], publishes: ["VP8", "H264"], takes: ["VP8", "H264"] },
  // Firefox has H.264 from a plugin that it downloads, which a test does not.
  firefox: { program: ["node", "browser.mjs", "firefox"], publishes: ["VP8"], takes: ["VP8"] },
  pion: { program: [process.env.MILLRACE_PION_PEER ?? "../pion/pion"], publishes: ["VP8"], takes: ["VP8", "H264"] },
  aiortc: {
    program: ["python3", "aiortc_peer.py"],
    env: { PYTHONPATH: process.env.MILLRACE_AIORTC ?? "" },
    publishes: ["VP8", "H264"],
    takes: ["VP8", "H264"],
  },
  gstreamer: { program: ["/usr/bin/python3", "gstreamer_peer.py"], publishes: ["VP8", "H264"], takes: ["VP8", "H264"] },
  libdatachannel: { program: ["node", "datachannel.mjs"], publishes: ["VP8"], takes: ["VP8", "H264"] },
};

const names = process.env.MILLRACE_INTEROP?.split(" ").filter(Boolean) ?? Object.keys(STACKS);

/** The stacks that are there: those that `MILLRACE_INTEROP` names, or all. */
export const stacks = names.map((name) => {
  if (!STACKS[name]) throw new Error(`no stack ${name}; there are: ${Object.keys(STACKS).join(" ")}`);
  return { name, ...STACKS[name] };
});

/** Runs a stack's program. */
export class Peer {
  constructor(stack, ...parameters) {
    this.name = `${stack.name} ${parameters.join(" ")}`;
    const [program, ...rest] = [...stack.program, ...parameters.map(String)];
    const env = { ...process.env, ...stack.env };
    this.child = spawn(program, rest, { cwd: FOLDER, env, stdio: ["pipe", "pipe", "pipe"] });
    this.child.stdin.on("error", () => undefined);
    this.log = "";
    this.child.stderr.on("data", (data) => (this.log = (this.log + data).slice(-10_000)));
    this.exited = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.once("error", (error) => (this.log += error.message));
    this.said = once(createInterface({ input: this.child.stdout }), "line").then(([line]) => JSON.parse(line));
  }

  /** The line that it says; with `grace` it is asked to end after so many seconds, and says then what it has. */
  async line(seconds, grace = 0) {
    const timers = [];
    const after = (seconds, act) => new Promise((resolve) => timers.push(setTimeout(() => resolve(act()), 1000 * seconds)));
    const failed = (why) => Promise.reject(new Error(`${this.name}: ${why}\n${this.log}`));
    if (grace > 0) void after(seconds, () => this.child.stdin.end());
    try {
      return await Promise.race([
        this.said,
        this.exited.then((code) => after(1, () => failed(`ended with ${code}`))),
        after(seconds + grace, () => failed(`said nothing within ${seconds + grace} s`)),
      ]);
    } finally {
      timers.forEach(clearTimeout);
    }
  }

  /** Closes its input, and waits until it is gone. */
  async end() {
    this.child.stdin.end();
    const kill = setTimeout(() => this.child.kill("SIGKILL"), 15_000);
    if (this.child.exitCode === null && this.child.signalCode === null && this.child.pid) await this.exited;
    clearTimeout(kill);
  }
}
