// Before the meeting: who comes in, with which camera and which microphone.

import type { LocalAudioTrack, LocalVideoTrack } from "livekit-client";
import { createAudioAnalyser, createLocalAudioTrack, createLocalVideoTrack, VideoPresets } from "./livekit.js";
import { byId } from "./page.js";

const NAME_KEY = "millrace.name";
const LEVEL_EVERY_MS = 100;

type Kind = "camera" | "microphone";

/** What somebody joins with. */
export interface Entry {
  name: string;
  token: string;
  camera: LocalVideoTrack | null;
  microphone: LocalAudioTrack | null;
}

export class Lobby {
  private camera: LocalVideoTrack | null = null;
  private microphone: LocalAudioTrack | null = null;
  private stopMeter = () => {};
  /** Until somebody has chosen, the browser does. */
  private isFirst = true;
  /** What is wrong with each of them. */
  private readonly notes = new Map<Kind, string>();
  private readonly name = byId("name", HTMLInputElement);
  private readonly token = byId("token", HTMLInputElement);

  constructor(join: (entry: Entry) => Promise<void>) {
    this.name.value = localStorage.getItem(NAME_KEY) ?? "";
    for (const kind of ["camera", "microphone"] as const) {
      byId(kind, HTMLSelectElement).addEventListener("change", () => void this.take(kind));
    }
    byId("join", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      void this.submit(join);
    });
  }

  /** Shows the room, and the camera. */
  async open(): Promise<void> {
    byId("lobby", HTMLElement).hidden = false;
    const media = navigator.mediaDevices;
    if (!media) return this.say("Browsers give out camera and microphone on https and on localhost only: you can watch and listen.");
    media.ondevicechange = () => void this.list();
    await Promise.all([this.take("camera"), this.take("microphone")]);
    this.isFirst = false;
    await this.list();
  }

  /** A token that was brought along; its name is who it is for. */
  give(token: string, name: string): void {
    this.token.value = token;
    if (name) this.name.value = name;
    this.name.readOnly = name !== "";
  }

  /** Asks for a token. */
  askForToken(): void {
    byId("token-label", HTMLElement).hidden = false;
    this.token.focus();
  }

  problem(text: string): void {
    byId("problem", HTMLElement).textContent = text;
  }

  private async submit(join: (entry: Entry) => Promise<void>): Promise<void> {
    const button = byId("join-button", HTMLButtonElement);
    localStorage.setItem(NAME_KEY, this.name.value);
    button.disabled = true;
    this.problem("");
    const { camera, microphone } = this;
    try {
      await join({ name: this.name.value.trim(), token: this.token.value.trim(), camera, microphone });
      this.close();
    } catch (error) {
      this.problem(error instanceof Error ? error.message : String(error));
    } finally {
      button.disabled = false;
    }
  }

  /** What is used goes with who uses it. */
  private close(): void {
    if (navigator.mediaDevices) navigator.mediaDevices.ondevicechange = null;
    this.stopMeter();
    this.camera?.detach(byId("preview", HTMLVideoElement));
    this.camera = this.microphone = null;
    byId("lobby", HTMLElement).hidden = true;
  }

  /** Takes the device that is chosen. */
  private async take(kind: Kind): Promise<void> {
    const wanted = byId(kind, HTMLSelectElement).value;
    const deviceId = wanted ? { exact: wanted } : undefined;
    this.leave(kind);
    this.notes.delete(kind);
    try {
      if (wanted || this.isFirst) await (kind === "camera" ? this.takeCamera(deviceId) : this.takeMicrophone(deviceId));
    } catch (error) {
      this.notes.set(kind, `${kind === "camera" ? "No camera" : "No microphone"}: ${reason(error)}`);
    }
    this.say([...this.notes.values()].join("\n"));
  }

  private async takeCamera(deviceId: ConstrainDOMString | undefined): Promise<void> {
    this.camera = await createLocalVideoTrack({ resolution: VideoPresets.h720.resolution, ...(deviceId && { deviceId }) });
    this.camera.attach(byId("preview", HTMLVideoElement));
  }

  private async takeMicrophone(deviceId: ConstrainDOMString | undefined): Promise<void> {
    this.microphone = await createLocalAudioTrack({ echoCancellation: true, noiseSuppression: true, ...(deviceId && { deviceId }) });
    const { analyser, calculateVolume, cleanup } = createAudioAnalyser(this.microphone);
    const level = byId("level", HTMLMeterElement);
    // Some browsers let a page measure no sound before it is touched.
    const resume = () => void (analyser.context as AudioContext).resume();
    addEventListener("pointerdown", resume, { once: true });
    const timer = setInterval(() => (level.value = calculateVolume()), LEVEL_EVERY_MS);
    this.stopMeter = () => {
      removeEventListener("pointerdown", resume);
      clearInterval(timer);
      level.value = 0;
      void cleanup();
      this.stopMeter = () => {};
    };
  }

  private leave(kind: Kind): void {
    if (kind === "microphone") this.stopMeter();
    this[kind]?.stop();
    this[kind] = null;
  }

  /** The devices by their names, which browsers tell once they have given one out. */
  private async list(): Promise<void> {
    const devices = await navigator.mediaDevices.enumerateDevices();
    for (const [kind, none] of [["camera", "No camera"], ["microphone", "No microphone"]] as const) {
      const found = devices.filter((device) => device.kind === (kind === "camera" ? "videoinput" : "audioinput") && device.deviceId);
      const current = this[kind]?.mediaStreamTrack.getSettings().deviceId ?? "";
      const options = found.map((device, index) => new Option(device.label || `${kind} ${index + 1}`, device.deviceId));
      const select = byId(kind, HTMLSelectElement);
      select.replaceChildren(...options, new Option(none, ""));
      select.value = found.some((device) => device.deviceId === current) ? current : "";
    }
  }

  /** Beside the preview. */
  private say(text: string): void {
    byId("preview-note", HTMLElement).textContent = text || (this.camera ? "" : "Your camera is off.");
  }
}

function reason(error: unknown): string {
  const name = error instanceof Error ? error.name : "";
  if (name === "NotAllowedError") return "the browser may not use it. Allow it in the address bar.";
  if (name === "NotFoundError" || name === "OverconstrainedError") return "there is none.";
  if (name === "NotReadableError") return "somebody else uses it.";
  return error instanceof Error ? error.message : String(error);
}
