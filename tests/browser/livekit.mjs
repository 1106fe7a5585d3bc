// Pages in which LiveKit's own client for browsers joins rooms, unmodified, and what they tell.

import { createHmac } from "node:crypto";
import { createRequire } from "node:module";
import { open, until } from "./browser.mjs";

const CLIENT = createRequire(import.meta.url).resolve("livekit-client");

/** A token as LiveKit's SDKs make it, signed with the key that there is for development. */
export function token(room, identity, grant = {}, secret = "secret") {
  const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const video = { roomJoin: true, room, canUpdateOwnMetadata: true, ...grant };
  const now = Math.floor(Date.now() / 1000);
  const signed = `${encode({ alg: "HS256", typ: "JWT" })}.${encode({ iss: "devkey", sub: identity, name: identity, nbf: now - 5, exp: now + 600, video })}`;
  return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
}

/** Calls RoomService. */
export async function admin(server, method, body, grant) {
  const bearer = token("", "application", { roomCreate: true, roomList: true, ...grant });
  const answer = await fetch(`${server.url}/twirp/livekit.RoomService/${method}`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${bearer}` },
    body: JSON.stringify(body),
  });
  return { status: answer.status, body: await answer.json() };
}

/** A page that has joined a room; what it hears is in `window.heard`. Of these video codecs (`lacks`, as "video/VP9") it takes none. */
export async function enter(browser, server, room, identity, { grant, options = {}, connect = {}, lacks = [] } = {}) {
  const page = await open(browser.context, `${server.url}/healthz`);
  await page.evaluate(forgetCodecs, lacks);
  await page.addScriptTag({ path: CLIENT });
  const url = server.url.replace("http", "ws");
  await page.evaluate(
    async ({ url, token, options, connect }) => {
      const { Room, RoomEvent } = LivekitClient;
      window.room = new Room(options);
      window.heard = [];
      const { room, heard } = window;
      // How signalling connections end: the client only logs it.
      window.WebSocket = class extends WebSocket {
        constructor(...args) {
          super(...args);
          this.addEventListener("close", ({ code, wasClean }) => heard.push({ event: "closed", code, wasClean }));
        }
      };
      const note = (event, what) => room.on(event, (...args) => heard.push({ event, ...what(...args) }));
      note(RoomEvent.TrackSubscribed, (track, publication, participant) => ({ kind: track.kind, source: publication.source, from: participant.identity }));
      note(RoomEvent.TrackUnsubscribed, (track, publication, participant) => ({ kind: track.kind, from: participant.identity }));
      note(RoomEvent.TrackMuted, (publication, participant) => ({ kind: publication.kind, from: participant.identity }));
      note(RoomEvent.TrackUnmuted, (publication, participant) => ({ kind: publication.kind, from: participant.identity }));
      note(RoomEvent.DataReceived, (data, participant, kind, topic) => ({ text: new TextDecoder().decode(data), from: participant?.identity, kind, topic }));
      note(RoomEvent.ActiveSpeakersChanged, (speakers) => ({ speakers: speakers.map((speaker) => speaker.identity) }));
      note(RoomEvent.ConnectionQualityChanged, (quality, participant) => ({ quality, of: participant.identity }));
      note(RoomEvent.ParticipantConnected, (participant) => ({ identity: participant.identity }));
      note(RoomEvent.ParticipantDisconnected, (participant) => ({ identity: participant.identity }));
      note(RoomEvent.Disconnected, (reason) => ({ reason }));
      for (const event of [RoomEvent.Reconnecting, RoomEvent.SignalReconnecting, RoomEvent.Reconnected]) note(event, () => ({}));
      await room.connect(url, token, connect);
    },
    { url, token: token(room, identity, grant), options, connect },
  );
  return page;
}

/** In a page: its browser is one that does not know these video codecs. */
function forgetCodecs(lacks) {
  if (lacks.length === 0) return;
  const capabilities = RTCRtpReceiver.getCapabilities.bind(RTCRtpReceiver);
  RTCRtpReceiver.getCapabilities = (kind) => {
    const known = capabilities(kind);
    return { ...known, codecs: known.codecs.filter(({ mimeType }) => !lacks.includes(mimeType)) };
  };
  for (const name of ["createOffer", "createAnswer"]) {
    const describe = RTCPeerConnection.prototype[name];
    RTCPeerConnection.prototype[name] = function (...args) {
      const { codecs } = RTCRtpReceiver.getCapabilities("video");
      for (const transceiver of this.getTransceivers()) {
        if (transceiver.receiver.track.kind === "video" && !transceiver.stopped) transceiver.setCodecPreferences(codecs);
      }
      return describe.apply(this, args);
    };
  }
}

/** Waits until the page has heard of something, and returns it. */
export function hears(page, event, like = {}, seconds = 15) {
  return until(`${event} ${JSON.stringify(like)}`, seconds, () =>
    page.evaluate(
      ({ event, like }) => window.heard.find((heard) => heard.event === event && Object.entries(like).every(([key, value]) => JSON.stringify(heard[key]) === JSON.stringify(value))),
      { event, like },
    ),
  );
}

/** The statistics of what the page receives of a source from somebody; zeros while there is nothing. */
export function received(page, identity, source) {
  return page.evaluate(
    async ({ identity, source }) => {
      const { track } = window.room.remoteParticipants.get(identity)?.getTrackPublication(source) ?? {};
      const report = await track?.receiver?.getStats();
      const none = { framesDecoded: 0, frameWidth: 0, packetsReceived: 0, packetsLost: 0, totalAudioEnergy: 0 };
      return { ...none, ...[...(report?.values() ?? [])].find((entry) => entry.type === "inbound-rtp") };
    },
    { identity, source },
  );
}

/** The codec in which the page receives a source from somebody, as "video/VP8"; nothing while it receives none. */
export function codec(page, identity, source) {
  return page.evaluate(
    async ({ identity, source }) => {
      const { track } = window.room.remoteParticipants.get(identity)?.getTrackPublication(source) ?? {};
      const report = await track?.receiver?.getStats();
      const inbound = [...(report?.values() ?? [])].find((entry) => entry.type === "inbound-rtp");
      return report?.get(inbound?.codecId)?.mimeType ?? "";
    },
    { identity, source },
  );
}

/** The layers of its camera that the page sends, by their names. */
export function sent(page) {
  return page.evaluate(async () => {
    const report = await window.room.localParticipant.getTrackPublication("camera").track.sender.getStats();
    return [...report.values()].filter((entry) => entry.type === "outbound-rtp" && entry.active).map((entry) => entry.rid).sort().join("");
  });
}

/** How a page sends its sound, as "audio/opus": the answer's first. */
export function soundSent(page) {
  return page.evaluate(() => {
    const { track } = window.room.localParticipant.getTrackPublication("microphone");
    return track.sender.getParameters().codecs[0]?.mimeType;
  });
}

/** Waits until some more of somebody's pictures are decoded, or of its sound is heard. */
export async function flows(page, identity, source, seconds = 20) {
  const count = async () => {
    const { framesDecoded, packetsReceived } = await received(page, identity, source);
    return source === "microphone" ? packetsReceived : framesDecoded;
  };
  const before = await count();
  await until(`${source} of ${identity} flows`, seconds, async () => (await count()) >= before + 10);
}

/** Shows somebody's camera, or screen, in an element of this size. */
export function show(page, identity, width, height, source = "camera") {
  return page.evaluate(
    ({ identity, width, height, source }) => {
      const { track } = window.room.remoteParticipants.get(identity).getTrackPublication(source);
      const video = document.getElementById(source) ?? document.body.appendChild(document.createElement("video"));
      video.id = source;
      if (!track.attachedElements.includes(video)) track.attach(video);
      Object.assign(video.style, { width: `${width}px`, height: `${height}px`, position: "fixed", top: 0, left: 0 });
    },
    { identity, width, height, source },
  );
}
