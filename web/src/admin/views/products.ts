// Streams, rooms, the pump, the relay and the reflector: each its figures, its plots and its lists.

import { path } from "../api.js";
import { age, bits, bytes, count, duration, perSecond } from "../format.js";
import type { PlotSpec } from "../plot.js";
import type { Samples } from "../samples.js";
import { last, to, View, type Context, type Figure } from "../view.js";
import { gone as goneAllocations } from "./allocation.js";
import { ending, back } from "./parts.js";
import { gone as goneViewers } from "./viewer.js";

interface Stream {
  name: string;
  state: string;
  viewers: number;
  tracks: { kind: string; codec: string; rids: string[] }[];
}

interface Room {
  id: string;
  name: string;
  since: number;
  participants: number;
  tracks: number;
}

/** Who is in a room, as its list has it. */
export interface Participant {
  id: string;
  identity: string;
  name: string;
  state: string;
  since: number;
  publishes: number;
  gets: number;
  sdk: string;
  version: string;
}

/** A session as lists of the pump have it. */
export interface PumpSession {
  id: string;
  title: string;
  destination: string;
  rate: number;
  worker: number;
  state: string;
  paused: boolean;
  scale: number;
  reason: string | null;
}

interface Title {
  name: string;
  bytes?: number;
  duration?: number | null;
  live?: boolean;
}

interface Allocation {
  id: string;
  user: string;
  worker: number;
  client: string;
  transport: string;
  relayed: string[] | string;
  age: number;
  expires_in: number;
  sent: { packets: number; bytes: number };
  received: { packets: number; bytes: number };
  dropped: number;
}

interface User {
  user: string;
  allocations: number;
  sent: { packets: number; bytes: number };
  received: { packets: number; bytes: number };
  dropped: { packets: number; bytes: number };
}

interface Reflected {
  name: string;
  path: string;
  content_type: string | null;
  live: boolean;
  rate: number;
  received_bytes: number;
  viewers: number;
}

interface Viewer {
  id: string;
  address: string | null;
  worker: number | null;
  hls: boolean;
  seconds: number;
}

const gauge = (label: string, name: string): Figure => ({ label, read: (samples) => count(last(samples.machine(name))) });
const rate = (name: string) => (samples: Samples) => samples.rate(samples.machine(name));
const bitRate = (name: string) => (samples: Samples) => rate(name)(samples).map((value) => value * 8);

export function streams(context: Context): View {
  const view = new View(context);
  view.addFigures([
    gauge("Streams live", "streams_live"),
    gauge("Publishers", "publishers"),
    gauge("Viewers", "viewers"),
    gauge("Connecting", "sessions_connecting"),
    { label: "Packets out", read: (samples) => perSecond(last(rate("rooms_packets_out_total")(samples))) },
    { label: "Sent again", read: (samples) => perSecond(last(rate("rooms_packets_resent_total")(samples))) },
    { label: "Pictures missing", read: (samples) => count(last(samples.machine("rooms_pictures_missing"))) },
  ]);
  view.addPlots([
    {
      title: "Streams and viewers",
      format: count,
      least: 4,
      lines: [
        { label: "viewers", read: (samples) => samples.machine("viewers") },
        { label: "streams", read: (samples) => samples.machine("streams_live") },
      ],
    },
    {
      title: "Media packets",
      format: perSecond,
      lines: [
        { label: "out", read: rate("rooms_packets_out_total") },
        { label: "in", read: rate("rooms_packets_in_total") },
        { label: "again", read: rate("rooms_packets_resent_total") },
      ],
    },
    {
      title: "Pictures that viewers get",
      format: count,
      least: 4,
      lines: [
        { label: "all", read: (samples) => samples.machine("rooms_pictures") },
        { label: "small", read: (samples) => samples.machine("rooms_pictures_small") },
        { label: "missing", read: (samples) => samples.machine("rooms_pictures_missing") },
      ],
    },
  ]);
  view.addList<Stream>(
    {
      name: "Streams",
      id: (stream) => stream.name,
      link: (stream) => to(["sessions"], { stream: stream.name }),
      action: ending(view, "stream", (stream) => stream.name, (stream) => ["api", "streams", stream.name]),
      empty: "There is no stream.",
      columns: [
        { title: "Name", width: "minmax(9rem, 2fr)", text: (stream) => stream.name },
        { title: "State", width: "7rem", text: (stream) => stream.state },
        { title: "Viewers", width: "6rem", isNumber: true, text: (stream) => count(stream.viewers), value: (stream) => stream.viewers },
        {
          title: "Tracks",
          width: "minmax(8rem, 2fr)",
          isExtra: true,
          text: (stream) => stream.tracks.map((track) => track.codec + (track.rids.length > 1 ? ` ×${track.rids.length}` : "")).join(", "),
        },
      ],
    },
    "/api/streams",
  );
  return view;
}

export function rooms(context: Context): View {
  const view = new View(context);
  const [, room] = context.route.parts;
  if (room !== undefined) return participants(view, room);
  view.addFigures([
    gauge("Rooms", "livekit_rooms"),
    gauge("Participants", "livekit_participants"),
    gauge("Tracks", "livekit_tracks"),
    { label: "Packets out", read: (samples) => perSecond(last(rate("rooms_packets_out_total")(samples))) },
  ]);
  view.addPlots([
    {
      title: "Participants and tracks",
      format: count,
      least: 4,
      lines: [
        { label: "participants", read: (samples) => samples.machine("livekit_participants") },
        { label: "tracks", read: (samples) => samples.machine("livekit_tracks") },
      ],
    },
    { title: "Rooms", format: count, least: 4, lines: [{ label: "", read: (samples) => samples.machine("livekit_rooms") }] },
  ]);
  view.addList<Room>(
    {
      name: "Rooms",
      id: (room) => room.name,
      link: (room) => to(["rooms", room.name]),
      action: ending(view, "room", (room) => room.name, (room) => ["api", "livekit", "rooms", room.name]),
      empty: "There is no room.",
      columns: [
        { title: "Name", width: "minmax(9rem, 2fr)", text: (room) => room.name },
        { title: "Here", width: "6rem", isNumber: true, text: (room) => count(room.participants), value: (room) => room.participants },
        { title: "Tracks", width: "6rem", isNumber: true, text: (room) => count(room.tracks), value: (room) => room.tracks },
        { title: "Open for", width: "8rem", isNumber: true, isExtra: true, text: (room) => age(room.since), value: (room) => -room.since },
      ],
    },
    "/api/livekit/rooms",
  );
  return view;
}

function participants(view: View, room: string): View {
  view.add(back("rooms", "Rooms", room));
  const of = (who: Participant) => ["api", "livekit", "rooms", room, "participants", who.identity];
  view.addList<Participant>(
    {
      name: "Participants",
      id: (who) => who.identity,
      link: (who) => to(["rooms", room, who.identity]),
      action: ending(view, "participant", (who) => who.identity, of),
      empty: "Nobody is here.",
      columns: [
        { title: "Identity", width: "minmax(9rem, 2fr)", text: (who) => who.identity },
        { title: "Name", width: "minmax(6rem, 1fr)", isExtra: true, text: (who) => who.name },
        { title: "State", width: "6rem", isExtra: true, text: (who) => who.state },
        { title: "Publishes", width: "6.5rem", isNumber: true, text: (who) => count(who.publishes), value: (who) => who.publishes },
        { title: "Gets", width: "5rem", isNumber: true, isExtra: true, text: (who) => count(who.gets), value: (who) => who.gets },
        { title: "SDK", width: "8rem", isExtra: true, text: (who) => `${who.sdk} ${who.version}`.trim() },
        { title: "Here for", width: "8rem", isNumber: true, isExtra: true, text: (who) => age(who.since), value: (who) => -who.since },
      ],
    },
    path(["api", "livekit", "rooms", room, "participants"]),
  );
  return view;
}

export function pump(context: Context): View {
  const view = new View(context);
  const worker = context.route.query.get("worker") ?? undefined;
  const title = context.route.query.get("title") ?? undefined;
  view.addFigures([
    gauge("Sessions", "pump_sessions"),
    gauge("Playing", "pump_playing"),
    gauge("Starved", "pump_starved"),
    { label: "Out", read: (samples) => bits(last(bitRate("pump_bytes_total")(samples))) },
    { label: "Underruns", read: (samples) => perSecond(last(rate("pump_underruns_total")(samples))) },
    { label: "Lost packets", read: (samples) => perSecond(last(rate("pump_lost_packets_total")(samples))) },
  ]);
  view.addPlots([
    { title: "Played out", format: bits, lines: [{ label: "", read: bitRate("pump_bytes_total") }] },
    {
      title: "Sessions",
      format: count,
      least: 4,
      lines: [
        { label: "all", read: (samples) => samples.machine("pump_sessions") },
        { label: "playing", read: (samples) => samples.machine("pump_playing") },
        { label: "starved", read: (samples) => samples.machine("pump_starved") },
      ],
    },
    lateness("late_pump_p99_us"),
  ]);
  if (worker !== undefined || title !== undefined) view.add(back("pump", "Pump", title ?? `worker ${worker}`));
  view.addList<PumpSession>(
    {
      name: "Sessions, and those that ended lately",
      id: (session) => session.id,
      link: (session) => to(["pump", session.id]),
      action: ending(view, "session", (session) => session.id, (session) => ["pump", "sessions", session.id]),
      empty: "Nothing is played.",
      columns: [
        { title: "Id", width: "5rem", text: (session) => session.id, value: (session) => Number(session.id) },
        { title: "Title", width: "minmax(8rem, 2fr)", text: (session) => session.title },
        { title: "Destination", width: "minmax(9rem, 2fr)", isExtra: true, text: (session) => session.destination },
        { title: "State", width: "7rem", text: pumpState },
        { title: "Rate", width: "8rem", isNumber: true, isExtra: true, text: (session) => bits(session.rate), value: (session) => session.rate },
        { title: "Worker", width: "5.5rem", isNumber: true, isExtra: true, text: (session) => String(session.worker), value: (session) => session.worker },
      ],
    },
    path(["pump", "sessions"], { after: "0", worker, title }),
  );
  view.addList<Title>(
    {
      name: "Titles",
      id: (title) => title.name,
      link: (title) => to(["pump"], { title: title.name }),
      empty: "There is no title in the folder.",
      columns: [
        { title: "Name", width: "minmax(9rem, 2fr)", text: (title) => title.name },
        { title: "Size", width: "8rem", isNumber: true, text: (title) => bytes(title.bytes ?? NaN), value: (title) => title.bytes ?? 0 },
        { title: "Length", width: "8rem", isNumber: true, text: (title) => duration(title.duration ?? NaN), value: (title) => title.duration ?? 0 },
      ],
    },
    "/pump/titles",
  );
  return view;
}

function pumpState(session: PumpSession): string {
  if (session.state !== "open") return session.reason ?? session.state;
  if (session.paused) return "paused";
  return session.scale === 1 ? "playing" : `playing ×${session.scale}`;
}

function lateness(name: string): PlotSpec {
  return {
    title: "Lateness, 99 %, worst worker",
    format: (value) => (value >= 1000 ? `${(value / 1000).toFixed(1)} ms` : `${value.toFixed(0)} µs`),
    lines: [{ label: "", read: (samples) => samples.worst(name) }],
  };
}

export function relay(context: Context): View {
  const view = new View(context);
  const user = context.route.query.get("user") ?? undefined;
  const worker = context.route.query.get("worker") ?? undefined;
  view.addFigures([
    gauge("Allocations", "relay_allocations"),
    { label: "Begun", read: (samples) => perSecond(last(rate("relay_allocations_begun_total")(samples))) },
    { label: "To peers", read: (samples) => bits(last(bitRate("relay_bytes_to_peers_total")(samples))) },
    { label: "To clients", read: (samples) => bits(last(bitRate("relay_bytes_to_clients_total")(samples))) },
  ]);
  view.addPlots([
    {
      title: "Relayed",
      format: bits,
      lines: [
        { label: "to peers", read: bitRate("relay_bytes_to_peers_total") },
        { label: "to clients", read: bitRate("relay_bytes_to_clients_total") },
      ],
    },
    { title: "Allocations", format: count, least: 4, lines: [{ label: "", read: (samples) => samples.machine("relay_allocations") }] },
    {
      title: "Datagrams",
      format: perSecond,
      lines: [
        { label: "to peers", read: rate("relay_packets_to_peers_total") },
        { label: "to clients", read: rate("relay_packets_to_clients_total") },
      ],
    },
  ]);
  if (user !== undefined || worker !== undefined) view.add(back("relay", "Relay", user ?? `worker ${worker}`));
  view.add(goneAllocations(user));
  view.addList<Allocation>(
    {
      name: "Allocations",
      id: (allocation) => allocation.id,
      link: (allocation) => to(["relay", allocation.id]),
      action: ending(view, "allocation", (allocation) => `${allocation.id} of ${allocation.user}`, (allocation) => ["api", "relay", "allocations", allocation.id]),
      empty: "There is no allocation.",
      columns: [
        { title: "Id", width: "minmax(5rem, 1fr)", text: (allocation) => allocation.id, value: (allocation) => Number(allocation.id) },
        { title: "User", width: "minmax(6rem, 1fr)", text: (allocation) => allocation.user },
        { title: "Client", width: "minmax(11rem, 3fr)", isExtra: true, text: (allocation) => `${allocation.client} ${allocation.transport}` },
        { title: "Relayed", width: "minmax(10rem, 2fr)", isExtra: true, text: (allocation) => [allocation.relayed].flat().join(", ") },
        { title: "Sent", width: "6.5rem", isNumber: true, text: (allocation) => bytes(allocation.sent.bytes), value: (allocation) => allocation.sent.bytes },
        { title: "Got", width: "6.5rem", isNumber: true, isExtra: true, text: (allocation) => bytes(allocation.received.bytes), value: (allocation) => allocation.received.bytes },
        { title: "Age", width: "7rem", isNumber: true, isExtra: true, text: (allocation) => duration(allocation.age), value: (allocation) => allocation.age },
      ],
    },
    path(["api", "relay", "allocations"], { user, worker }),
  );
  view.addList<User>(
    {
      name: "Users",
      id: (user) => user.user,
      link: (user) => to(["relay"], { user: user.user }),
      empty: "Nobody has an allocation.",
      columns: [
        { title: "User", width: "minmax(9rem, 2fr)", text: (user) => user.user },
        { title: "Allocations", width: "7rem", isNumber: true, text: (user) => count(user.allocations), value: (user) => user.allocations },
        { title: "Sent", width: "7rem", isNumber: true, isExtra: true, text: (user) => bytes(user.sent.bytes), value: (user) => user.sent.bytes },
        { title: "Got", width: "7rem", isNumber: true, isExtra: true, text: (user) => bytes(user.received.bytes), value: (user) => user.received.bytes },
        { title: "Dropped", width: "7rem", isNumber: true, isExtra: true, text: (user) => bytes(user.dropped.bytes), value: (user) => user.dropped.bytes },
      ],
    },
    "/api/relay/users",
  );
  return view;
}

export function reflect(context: Context): View {
  const view = new View(context);
  const [, stream] = context.route.parts;
  if (stream !== undefined) return viewers(view, stream);
  view.addFigures([
    gauge("Streams", "reflect_streams"),
    gauge("Viewers", "reflect_viewers"),
    { label: "Out", read: (samples) => bits(last(bitRate("reflect_sent_bytes_total")(samples))) },
    { label: "Skips", read: (samples) => perSecond(last(rate("reflect_skips_total")(samples))) },
  ]);
  view.addPlots([
    { title: "Sent", format: bits, lines: [{ label: "", read: bitRate("reflect_sent_bytes_total") }] },
    { title: "Viewers", format: count, least: 4, lines: [{ label: "", read: (samples) => samples.machine("reflect_viewers") }] },
    { title: "Viewers that fell behind", format: perSecond, lines: [{ label: "skips", read: rate("reflect_skips_total") }] },
  ]);
  view.addList<Reflected>(
    {
      name: "Streams",
      id: (stream) => stream.name,
      link: (stream) => to(["reflect", stream.name]),
      empty: "There is no stream.",
      columns: [
        { title: "Name", width: "minmax(8rem, 2fr)", text: (stream) => stream.name },
        { title: "Path", width: "minmax(8rem, 2fr)", isExtra: true, text: (stream) => stream.path },
        { title: "Source", width: "6rem", text: (stream) => (stream.live ? "live" : "none") },
        { title: "Viewers", width: "6rem", isNumber: true, text: (stream) => count(stream.viewers), value: (stream) => stream.viewers },
        { title: "Rate", width: "8rem", isNumber: true, isExtra: true, text: (stream) => bits(stream.rate), value: (stream) => stream.rate },
        { title: "Came", width: "8rem", isNumber: true, isExtra: true, text: (stream) => bytes(stream.received_bytes), value: (stream) => stream.received_bytes },
      ],
    },
    "/api/reflect/streams",
  );
  return view;
}

function viewers(view: View, stream: string): View {
  view.add(back("reflect", "Reflect", stream)).add(goneViewers(stream));
  view.addList<Viewer>(
    {
      name: "Viewers",
      id: (viewer) => viewer.id,
      link: (viewer) => to(["reflect", "viewer", viewer.id]),
      action: ending(view, "viewer", (viewer) => `${viewer.id} at ${viewer.address}`, (viewer) => ["api", "reflect", "viewers", viewer.id]),
      empty: "Nobody watches.",
      columns: [
        { title: "Id", width: "6rem", text: (viewer) => viewer.id, value: (viewer) => Number(viewer.id) },
        { title: "Address", width: "minmax(9rem, 2fr)", text: (viewer) => viewer.address ?? "–" },
        { title: "By", width: "6rem", isExtra: true, text: (viewer) => (viewer.hls ? "HLS" : "bytes") },
        { title: "Worker", width: "6rem", isNumber: true, isExtra: true, text: (viewer) => String(viewer.worker ?? "–"), value: (viewer) => viewer.worker ?? -1 },
        { title: "Here for", width: "8rem", isNumber: true, text: (viewer) => duration(viewer.seconds), value: (viewer) => viewer.seconds },
      ],
    },
    path(["api", "reflect", "streams", stream, "viewers"]),
  );
  return view;
}

