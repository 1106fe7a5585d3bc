// LiveKit's SDK for Rust.

import { test } from "node:test";
import { serve } from "../browser/server.mjs";
import { Peer } from "./stacks.mjs";

const packages = process.env.MILLRACE_RUST_SDK;

test("the SDK for Rust publishes, watches, and exchanges data", { skip: !packages && "it is not there" }, async (context) => {
  const server = await serve();
  context.after(() => server.stop());
  const sdk = { name: "the SDK for Rust", program: ["python3", "rust_sdk_peer.py"], env: { PYTHONPATH: packages } };
  const peer = new Peer(sdk, server.url);
  context.after(() => peer.end());
  await peer.line(240);
});
