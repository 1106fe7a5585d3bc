// Follows the server's samples: the hour first, then each as it is made, again and again when that breaks off.

import { ask, read, Refused } from "./api.js";
import type { Fields, Sample, Samples } from "./samples.js";

export type Link = { kind: "connecting" | "live" } | { kind: "lost" | "refused"; why: string };

const AGAIN_MS = [1000, 2000, 5000];
/** Seconds between the samples of the hour that is loaded first. */
const COARSE = 4;

/** Until `signal`, or until the server refuses the token. */
export async function follow(samples: Samples, told: (link: Link) => void, signal: AbortSignal): Promise<void> {
  for (let tries = 0; !signal.aborted; tries++) {
    try {
      const after = samples.last?.at ?? 0;
      const step = after === 0 ? COARSE : 1;
      const hour = await read<{ fields: Fields; samples: Sample[] }>(
        `/api/admin/history?step=${step}&after=${after}`,
        signal,
      );
      samples.begin(hour.fields);
      samples.add(hour.samples);
      await events(samples, told, signal, () => (tries = 0));
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        told({ kind: "refused", why: error.message });
        return;
      }
      told({ kind: "lost", why: error instanceof Error ? error.message : String(error) });
    }
    await pause(AGAIN_MS[Math.min(tries, AGAIN_MS.length - 1)] ?? 1000, signal);
  }
}

async function events(
  samples: Samples,
  told: (link: Link) => void,
  signal: AbortSignal,
  works: () => void,
): Promise<void> {
  const response = await ask("/api/admin/events", { signal });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) throw new Error("the answer has no body");
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the server has ended the stream");
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop() ?? "";
    for (const part of parts) {
      const data = /^data: (.*)$/m.exec(part)?.[1];
      if (data === undefined) continue;
      if (part.startsWith("event: fields")) samples.begin(JSON.parse(data) as Fields);
      else samples.add([JSON.parse(data) as Sample]);
      works();
      told({ kind: "live" });
    }
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
