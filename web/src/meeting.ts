// The meeting: what is in the room is on the page. Whatever happens, the page is made to be as the room is.

import type { LocalParticipant, Participant, RoomOptions } from "livekit-client";
import { Chat } from "./chat.js";
import { keepPlaced } from "./grid.js";
import { DisconnectReason, Room, RoomEvent, Track } from "./livekit.js";
import type { Entry } from "./lobby.js";
import { byId } from "./page.js";
import { Tile } from "./tile.js";

const MEASURE_EVERY_MS = 1000;

/** What changes what is to be seen. */
const CHANGES = [
  RoomEvent.ParticipantConnected,
  RoomEvent.ParticipantDisconnected,
  RoomEvent.ParticipantNameChanged,
  RoomEvent.ParticipantPermissionsChanged,
  RoomEvent.TrackSubscribed,
  RoomEvent.TrackUnsubscribed,
  RoomEvent.TrackPublished,
  RoomEvent.TrackUnpublished,
  RoomEvent.TrackMuted,
  RoomEvent.TrackUnmuted,
  RoomEvent.LocalTrackPublished,
  RoomEvent.LocalTrackUnpublished,
  RoomEvent.ActiveSpeakersChanged,
  RoomEvent.AudioPlaybackStatusChanged,
  RoomEvent.Connected,
  RoomEvent.Reconnecting,
  RoomEvent.SignalReconnecting,
  RoomEvent.Reconnected,
] as const;

const SETTINGS: RoomOptions = { adaptiveStream: true, dynacast: true };

export class Meeting {
  room: Room | null = null;
  readonly tiles = new Map<string, Tile>();
  private readonly chat = new Chat();
  private isDue = false;

  /** `left` hears why it is over. */
  constructor(private readonly left: (why: string) => void) {
    keepPlaced(byId("stage", HTMLElement), false);
    keepPlaced(byId("people", HTMLElement), true);
    this.on("mic-button", (me) => me.setMicrophoneEnabled(!me.isMicrophoneEnabled));
    this.on("camera-button", (me) => me.setCameraEnabled(!me.isCameraEnabled));
    this.on("screen-button", (me) => me.setScreenShareEnabled(!me.isScreenShareEnabled, { audio: true }));
    byId("numbers-button", HTMLButtonElement).addEventListener("click", () => this.toggleNumbers());
    byId("leave-button", HTMLButtonElement).addEventListener("click", () => void this.room?.disconnect());
    byId("listen-button", HTMLButtonElement).addEventListener("click", () => void this.room?.startAudio());
    byId("screen-button", HTMLElement).hidden = !navigator.mediaDevices?.getDisplayMedia;
    setInterval(() => this.measure(), MEASURE_EVERY_MS);
  }

  /** Joins; what went wrong is thrown. */
  async enter(url: string, token: string, entry: Entry): Promise<void> {
    const room = new Room(SETTINGS);
    this.chat.enter(room);
    for (const event of CHANGES) room.on(event, () => this.change());
    room.on(RoomEvent.MediaDevicesError, (error) => this.say(error.message));
    try {
      await room.connect(url, token);
    } catch (error) {
      await room.disconnect();
      throw error;
    }
    this.room = room;
    room.on(RoomEvent.Disconnected, (reason) => this.leave(room, reason));
    byId("meeting", HTMLElement).hidden = false;
    this.say("");
    this.render();
    await this.bring(room, entry);
  }

  /** Publishes what somebody comes with. Who may not, or is refused, is in the room all the same. */
  private async bring(room: Room, { name, camera, microphone }: Entry): Promise<void> {
    const me = room.localParticipant;
    if (name && !me.name) await me.setName(name).catch(() => undefined);
    for (const track of [microphone, camera]) {
      if (track && me.permissions?.canPublish) await me.publishTrack(track).catch((error: Error) => this.say(error.message));
      else track?.stop();
    }
    this.render();
  }

  private leave(room: Room, reason: DisconnectReason | undefined): void {
    if (this.room !== room) return;
    this.room = null;
    for (const tile of this.tiles.values()) tile.remove();
    this.tiles.clear();
    byId("meeting", HTMLElement).hidden = true;
    this.left(farewell(reason));
  }

  /** Several changes at once are shown once. */
  private change(): void {
    if (this.isDue) return;
    this.isDue = true;
    queueMicrotask(() => {
      this.isDue = false;
      this.render();
    });
  }

  private render(): void {
    const { room } = this;
    if (!room) return;
    const people = [...room.remoteParticipants.values(), room.localParticipant];
    const wanted = new Map<string, [Participant, boolean]>();
    for (const person of people) {
      wanted.set(`${person.sid}/camera`, [person, false]);
      if (person.getTrackPublication(Track.Source.ScreenShare)?.track) wanted.set(`${person.sid}/screen`, [person, true]);
    }
    for (const [key, tile] of this.tiles) {
      if (wanted.get(key)?.[0] === tile.participant) continue;
      tile.remove();
      this.tiles.delete(key);
    }
    for (const [key, [person, isScreen]] of wanted) this.place(key, person, isScreen);
    byId("stage", HTMLElement).hidden = ![...this.tiles.values()].some((tile) => tile.isScreen);
    byId("room-name", HTMLElement).textContent = room.name;
    byId("count", HTMLElement).textContent = people.length === 1 ? "only you" : `${people.length} people`;
    byId("connection", HTMLElement).textContent = room.state === "connected" ? "" : "Reconnecting …";
    byId("listen-button", HTMLElement).hidden = room.canPlaybackAudio;
    this.showControls(room.localParticipant);
  }

  private place(key: string, person: Participant, isScreen: boolean): void {
    let tile = this.tiles.get(key);
    if (!tile) {
      tile = new Tile(person, isScreen);
      this.tiles.set(key, tile);
      const box = byId(isScreen ? "stage" : "people", HTMLElement);
      // Oneself stays last.
      const last = box.querySelector("[data-mirrored=true]");
      if (last && !person.isLocal) last.before(tile.element);
      else box.append(tile.element);
      if (byId("numbers-button", HTMLElement).getAttribute("aria-pressed") === "true") tile.showNumbers(true);
    }
    tile.update();
  }

  private showControls(me: LocalParticipant): void {
    const mayPublish = me.permissions?.canPublish ?? true;
    const states = { mic: me.isMicrophoneEnabled, camera: me.isCameraEnabled, screen: me.isScreenShareEnabled };
    for (const [name, isOn] of Object.entries(states)) {
      const button = byId(`${name}-button`, HTMLButtonElement);
      button.setAttribute("aria-pressed", String(isOn));
      button.disabled = !mayPublish;
      button.title = mayPublish ? "" : "Your token lets you watch only";
    }
  }

  private on(id: string, act: (me: LocalParticipant) => Promise<unknown>): void {
    const button = byId(id, HTMLButtonElement);
    button.addEventListener("click", () => {
      if (!this.room || button.ariaBusy === "true") return;
      button.ariaBusy = "true";
      this.say("");
      const failed = (error: Error) => {
        // Who shares no screen after all has said so himself.
        if (id !== "screen-button" || error.name !== "NotAllowedError") this.say(error.message);
      };
      void act(this.room.localParticipant).catch(failed).finally(() => {
        button.ariaBusy = null;
        this.render();
      });
    });
  }

  private toggleNumbers(): void {
    const button = byId("numbers-button", HTMLButtonElement);
    const isShown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(isShown));
    for (const tile of this.tiles.values()) tile.showNumbers(isShown);
  }

  private measure(): void {
    for (const tile of this.tiles.values()) if (tile.wantsNumbers) void tile.measure();
  }

  private say(text: string): void {
    byId("notice", HTMLElement).textContent = text;
  }
}

function farewell(reason: DisconnectReason | undefined): string {
  switch (reason) {
    case DisconnectReason.CLIENT_INITIATED:
      return "";
    case DisconnectReason.DUPLICATE_IDENTITY:
      return "Somebody else joined with your token, so you are out.";
    case DisconnectReason.PARTICIPANT_REMOVED:
      return "You were removed from the room.";
    case DisconnectReason.ROOM_DELETED:
    case DisconnectReason.ROOM_CLOSED:
      return "The room was closed.";
    case DisconnectReason.SERVER_SHUTDOWN:
      return "The server has ended.";
    default:
      return "The connection is lost.";
  }
}
