// Shows what arrives: numbers, the bitrate of the last minute, and the choice of layer.

import type { Player } from "./player.js";
import type { Reflected } from "./signal.js";
import type { Watcher } from "./watch.js";

const CHART_SECONDS = 60;
let charted: { of: unknown; rates: number[] } = { of: null, rates: [] };

export function showStats(watcher: Watcher): void {
  const list = byId("stats");
  const { flow } = watcher;
  const server = watcher.server ?? {};
  byId("chart").hidden = !flow;
  if (!flow) return list.replaceChildren();
  const layer = server.layers?.[0];
  const roundTrip = flow.roundTripMs ?? server.round_trip_ms;
  const rows: [string, string][] = [
    ["Resolution", flow.width ? `${flow.width} × ${flow.height}` : "–"],
    ["Frames per second", flow.framesPerSecond.toFixed(0)],
    ["Video", `${kilobits(flow.videoBitrate)} ${flow.videoCodec}`],
    ["Audio", `${kilobits(flow.audioBitrate)} ${flow.audioCodec}`],
    ["Loss", `${(100 * flow.loss).toFixed(1)} % (${flow.packetsLost} in all)`],
    ["Round trip", milliseconds(roundTrip)],
    ["Jitter buffer", milliseconds(flow.jitterBufferMs)],
    ["Freezes", String(flow.freezes)],
    ["Asked again", `${flow.nacks} NACK, ${flow.keyframeRequests} PLI`],
    ["Layer", layer ? layerText(layer.current, layer.layer_count, layer.rid) : "–"],
    ["Bandwidth estimate", server.estimate ? kilobits(server.estimate) : "–"],
    ["Encryption", cipherText(flow.cipher)],
  ];
  list.replaceChildren(...rows.map(([term, value]) => row(term, value)));
  chart(flow, flow.videoBitrate);
}

/** `known` is what the server says of the stream. */
export function showPlaying(player: Player, known: Reflected | undefined): void {
  const list = byId("stats");
  const { playing } = player;
  byId("chart").hidden = true;
  if (!playing) return list.replaceChildren();
  const rows: [string, string][] = [
    ["Resolution", playing.width ? `${playing.width} × ${playing.height}` : "–"],
    ["Frames per second", playing.framesPerSecond.toFixed(0)],
    ["Rate", known?.rate ? kilobits(known.rate) : "–"],
    ["Behind", playing.behind === null ? "–" : `${playing.behind.toFixed(1)} s`],
    ["Buffer", `${playing.buffered.toFixed(1)} s`],
    ["Frames dropped", String(playing.dropped)],
    ["Address", known?.path ?? "–"],
    ["Playlist", known?.hls ?? "–"],
  ];
  list.replaceChildren(...rows.map(([term, value]) => row(term, value)));
}

/** Radio buttons for each layer of the video, made anew only when the layers are others. */
export function showLayers(watcher: Watcher | null, rids: string[]): void {
  const box = byId("layers");
  const video = watcher?.server?.layers?.find((layer) => layer.layer_count > 1);
  box.hidden = !video;
  if (!watcher || !video) return;
  const shape = `${watcher.name} ${video.layer_count} ${rids.join()}`;
  if (box.dataset["shape"] !== shape) {
    box.dataset["shape"] = shape;
    const choices = [choice("auto", "auto", () => void watcher.select(null))];
    for (let layer = 0; layer < video.layer_count; layer++) {
      const name = layerText(layer, video.layer_count, rids[layer] ?? null);
      choices.push(choice(String(layer), name, () => void watcher.select(layer)));
    }
    box.replaceChildren(...box.querySelectorAll("legend"), ...choices);
  }
  for (const input of box.querySelectorAll("input")) {
    input.checked = input.value === String(watcher.selected ?? "auto");
    input.parentElement?.setAttribute("data-current", String(input.value === String(video.current)));
  }
}

function layerText(layer: number | null, count: number, rid: string | null): string {
  if (layer === null) return "none yet";
  if (count < 2) return "the only one";
  const place = layer === 0 ? "smallest" : layer === count - 1 ? "largest" : `${layer + 1} of ${count}`;
  return rid ? `${rid} (${place})` : place;
}

/** "AEAD_AES_128_GCM" as "AES-GCM 128". */
function cipherText(cipher: string): string {
  const bits = /AES_?(\d+)/.exec(cipher)?.[1];
  return bits ? `${cipher.includes("GCM") ? "AES-GCM" : "AES-CM"} ${bits}` : cipher || "–";
}

function choice(value: string, text: string, chosen: () => void): HTMLElement {
  const label = document.createElement("label");
  const input = document.createElement("input");
  input.type = "radio";
  input.name = "layer";
  input.value = value;
  input.addEventListener("change", chosen);
  label.append(input, ` ${text}`);
  return label;
}

function row(term: string, value: string): HTMLElement {
  const div = document.createElement("div");
  const dt = document.createElement("dt");
  const dd = document.createElement("dd");
  dt.textContent = term;
  dd.textContent = value;
  div.append(dt, dd);
  return div;
}

/** One point for each reading; `reading` tells a new reading from a repeated call. */
function chart(reading: unknown, bitrate: number): void {
  if (charted.of === reading) return;
  charted = { of: reading, rates: [...charted.rates, bitrate].slice(-CHART_SECONDS) };
  const top = Math.max(...charted.rates, 1);
  const points = charted.rates.map((rate, index) => {
    const x = 300 - (charted.rates.length - 1 - index) * (300 / (CHART_SECONDS - 1));
    return `${x.toFixed(1)},${(46 - (44 * rate) / top).toFixed(1)}`;
  });
  byId("line").setAttribute("points", points.join(" "));
}

export function kilobits(bitsPerSecond: number): string {
  return bitsPerSecond >= 1e6 ? `${(bitsPerSecond / 1e6).toFixed(2)} Mbit/s` : `${Math.round(bitsPerSecond / 1e3)} kbit/s`;
}

function milliseconds(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : `${value.toFixed(value < 10 ? 1 : 0)} ms`;
}

function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as HTMLElement;
}
