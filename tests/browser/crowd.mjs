// Clients by the thousand: `millrace load`, until it is told to end.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { BINARY } from "./server.mjs";

/** Starts `millrace load KIND FLAGS…` at a server; resolves once all whom it plays are there. */
export async function crowd(url, kind, ...flags) {
  // It ends when the test says so.
  const words = ["load", kind, "--url", url, "--json", "--marks", "--warm-up", "0", "--seconds", "3600", ...flags];
  const child = spawn(BINARY, words, { stdio: ["ignore", "pipe", "pipe"] });
  process.on("exit", () => child.kill("SIGKILL"));
  let said = "";
  const ended = once(child, "exit");
  const begun = new Promise((resolve) => {
    child.stderr.on("data", (data) => (said += data));
    child.stdout.on("data", (data) => {
      said += data;
      if (said.includes('"mark":"begin"')) resolve(true);
    });
  });
  if (!(await Promise.race([begun, ended.then(() => false)]))) throw new Error(`millrace load ${kind} ended: ${said}`);
  return {
    /** Without a goodbye: those whom it played are silent from now on. */
    async stop() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}
