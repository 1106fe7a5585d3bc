// One participant's camera, or screen: the picture, the sound, the name, and the numbers on demand.

import type { Participant, RemoteTrack, TrackPublication } from "livekit-client";
import { Track } from "./livekit.js";
import { icon, make } from "./page.js";
import { Meter, type Flow } from "./stats.js";
import { kilobits } from "./view.js";

export class Tile {
  readonly element = make("article", "tile");
  /** What the numbers say; tests look here, too. */
  flow: { video: Flow | null; audio: Flow | null } = { video: null, audio: null };
  private readonly video = make("video");
  private readonly name = make("span", "who");
  private readonly muted = make("span", "muted", icon("mic-off"));
  private readonly numbers = make("dl", "numbers");
  private readonly button = make("button", "ask", icon("numbers"));
  private picture: Track | null = null;
  private sound: Track | null = null;
  private readonly meters = new WeakMap<Track, Meter>();

  constructor(
    readonly participant: Participant,
    readonly isScreen: boolean,
  ) {
    this.video.playsInline = this.video.muted = true;
    this.muted.title = "The microphone is off";
    this.button.type = "button";
    this.button.setAttribute("aria-pressed", "false");
    this.button.addEventListener("click", () => this.showNumbers(Boolean(this.numbers.hidden)));
    this.numbers.hidden = true;
    const avatar = make("div", "avatar");
    avatar.setAttribute("aria-hidden", "true");
    avatar.append(make("span"));
    this.element.append(avatar, this.video, make("div", "plate", this.muted, this.name), this.button, this.numbers);
    this.element.dataset["identity"] = participant.identity;
    this.element.dataset["source"] = isScreen ? "screen" : "camera";
  }

  get wantsNumbers(): boolean {
    return !this.numbers.hidden;
  }

  showNumbers(isShown: boolean): void {
    this.numbers.hidden = !isShown;
    this.button.setAttribute("aria-pressed", String(isShown));
    if (isShown) void this.measure();
  }

  /** Shows what the participant has now. */
  update(): void {
    const { participant, isScreen } = this;
    const name = participant.name || participant.identity;
    const whose = participant.isLocal ? `${name} (you)` : name;
    this.name.textContent = isScreen ? `${whose}: screen` : whose;
    this.element.setAttribute("aria-label", this.name.textContent);
    this.button.setAttribute("aria-label", `Numbers of ${this.name.textContent}`);
    this.initials(name);
    const [video, audio] = this.publications();
    this.show(video);
    this.hear(audio);
    this.muted.hidden = isScreen || (audio !== undefined && !audio.isMuted);
    this.element.dataset["speaking"] = String(!isScreen && participant.isSpeaking);
    this.element.dataset["mirrored"] = String(!isScreen && participant.isLocal);
  }

  /** Reads the statistics once. */
  async measure(): Promise<void> {
    this.flow = { video: await this.read(this.picture), audio: await this.read(this.sound ?? this.ownSound()) };
    if (!this.numbers.hidden) this.numbers.replaceChildren(...this.rows().map(([term, value]) => row(term, value)));
  }

  remove(): void {
    this.picture?.detach(this.video);
    this.sound?.detach().forEach((element) => element.remove());
    this.element.remove();
  }

  private publications(): [TrackPublication | undefined, TrackPublication | undefined] {
    const { Camera, Microphone, ScreenShare, ScreenShareAudio } = Track.Source;
    const sources = this.isScreen ? [ScreenShare, ScreenShareAudio] : [Camera, Microphone];
    const [video, audio] = sources.map((source) => this.participant.getTrackPublication(source));
    return [video, audio];
  }

  private show(publication: TrackPublication | undefined): void {
    const track = publication?.track ?? null;
    if (this.picture !== track) {
      this.picture?.detach(this.video);
      track?.attach(this.video);
      this.picture = track;
    }
    this.element.dataset["picture"] = String(track !== null && !publication?.isMuted);
  }

  /** Nobody hears himself. */
  private hear(publication: TrackPublication | undefined): void {
    const track = this.participant.isLocal ? null : (publication?.track ?? null);
    if (this.sound === track) return;
    this.sound?.detach().forEach((element) => element.remove());
    if (track) this.element.append(track.attach());
    this.sound = track;
  }

  private ownSound(): Track | null {
    return this.publications()[1]?.track ?? null;
  }

  private async read(track: Track | null): Promise<Flow | null> {
    if (!track) return null;
    const meter = this.meters.get(track) ?? new Meter({ getStats: async () => (await (track as RemoteTrack).getRTCStatsReport()) ?? new Map() });
    this.meters.set(track, meter);
    return await meter.read();
  }

  private rows(): [string, string][] {
    const { video, audio } = this.flow;
    const has = (flow: Flow | null): flow is Flow => flow !== null && flow.bytes > 0;
    const losses = [video, audio].filter(has).map((flow) => flow.loss);
    return [
      ["Resolution", has(video) && video.width ? `${video.width} × ${video.height}` : "–"],
      ["Frames/s", has(video) ? video.framesPerSecond.toFixed(0) : "–"],
      ["Video", has(video) ? `${kilobits(video.videoBitrate)} ${video.videoCodec}` : "–"],
      ["Audio", has(audio) ? `${kilobits(audio.audioBitrate)} ${audio.audioCodec}` : "–"],
      ["Loss", losses.length > 0 ? `${(100 * Math.max(...losses)).toFixed(1)} %` : "–"],
      ["Layer", has(video) ? this.layer(video) : "–"],
      ["Connection", this.participant.connectionQuality],
    ];
  }

  /** Of one's own, what is sent; of others', which of what they send. */
  private layer(flow: Flow): string {
    const sent = flow.layers.filter((layer) => layer.framesPerSecond > 0);
    if (this.participant.isLocal) return sent.map((layer) => layer.rid || "one").join(", ") || "–";
    const layers = [...(this.publications()[0]?.trackInfo?.layers ?? [])].sort((a, b) => a.width - b.width);
    if (layers.length < 2) return "the only one";
    const distance = ({ width, height }: { width: number; height: number }) => Math.abs(width * height - flow.width * flow.height);
    const nearest = layers.reduce((best, layer, index) => (distance(layer) < distance(layers[best] ?? layer) ? index : best), 0);
    return `${nearest + 1} of ${layers.length}`;
  }

  private initials(name: string): void {
    const words = name.split(/[\s-]+/).filter(Boolean);
    const text = words.slice(0, 2).map((word) => [...word][0]?.toUpperCase() ?? "").join("");
    const place = this.element.querySelector(".avatar span");
    if (place && place.textContent !== text) place.textContent = text;
  }
}

function row(term: string, value: string): HTMLElement {
  return make("div", "", make("dt", "", term), make("dd", "", value));
}
