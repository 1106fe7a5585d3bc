// Starts the server under test on free ports of the loopback interface, and ends it again: only what it started.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

export const BINARY = process.env.MILLRACE_BIN ?? fileURLToPath(new URL("../../target/debug/millrace", import.meta.url));

/** Starts `millrace serve FLAGS…`; resolves once it answers. */
export async function serve(...flags) {
  const listen = `127.0.0.1:${await freePort()}`;
  const server = {
    url: `http://${listen}`,
    process: await start(listen, flags),
    async stop() {
      await end(server.process);
    },
    /** Ends it without a goodbye, as a crash would, and starts it on the same port. */
    async restart() {
      server.process.kill("SIGKILL");
      await ended(server.process);
      server.process = await start(listen, flags);
    },
  };
  return server;
}

async function start(listen, flags) {
  const child = spawn(BINARY, ["serve", ...flags], {
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      ...process.env,
      MILLRACE_HTTP_LISTEN: listen,
      MILLRACE_AUTH_DEV: "true",
      MILLRACE_WORKERS_UDP_PORT: "0",
    },
  });
  process.on("exit", () => child.kill("SIGKILL"));
  let log = "";
  const keep = (data) => (log = (log + data).slice(-20_000));
  child.stdout.on("data", keep);
  child.stderr.on("data", keep);
  child.on("error", (error) => keep(String(error)));
  child.on("exit", (code, signal) => {
    if (code || process.env.MILLRACE_SHOW_LOG) console.error(`server ended: ${code ?? signal}\n${log}`);
  });
  for (let waited = 0; waited < 20_000; waited += 50) {
    if (child.exitCode !== null || child.pid === undefined) throw new Error(`${BINARY} serve ended at once\n${log}`);
    const answer = await fetch(`http://${listen}/healthz`).catch(() => null);
    if (answer?.ok) return child;
    await sleep(50);
  }
  await end(child);
  throw new Error(`the server does not answer on ${listen}\n${log}`);
}

/** Asks twice by SIGTERM: the second one ends the drain at once. */
async function end(child) {
  for (const signal of ["SIGTERM", "SIGTERM", "SIGKILL"]) {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill(signal);
    await Promise.race([ended(child), sleep(2000)]);
  }
}

async function ended(child) {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
}

/** One that nobody has, below those that the kernel gives away meanwhile. */
async function freePort() {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    const probe = createServer().listen(port, "127.0.0.1");
    const isFree = await once(probe, "listening").then(() => true, () => false);
    if (!isFree) continue;
    probe.close();
    await once(probe, "close");
    return port;
  }
}
