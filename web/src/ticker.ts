// Even ticks for the test picture. A page's own timers sleep while its tab is hidden, a worker's do not.

/** Calls `tick` at an interval; returns what ends that. */
export function everyTick(intervalMs: number, tick: () => void): () => void {
  // The page's own script is the worker's too (app.ts), so that no policy has to allow another source.
  const worker = new Worker(import.meta.url, { type: "module" });
  worker.onmessage = tick;
  worker.postMessage(intervalMs);
  return () => worker.terminate();
}

/** The worker's side. */
export function keepTime(): void {
  self.onmessage = (event: MessageEvent<number>) => setInterval(() => self.postMessage(0), event.data);
}
