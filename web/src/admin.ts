// The dashboard: who is let in, which view is seen, and the samples that come meanwhile.
//
// Addresses: `/admin#/VIEW`, with what a view shows behind it; so each is a link.

import { follow, type Link } from "./admin/events.js";
import { keepToken, read, Refused, token } from "./admin/api.js";
import { duration } from "./admin/format.js";
import { Samples } from "./admin/samples.js";
import type { About, Context, Route, View } from "./admin/view.js";
import { allocation, ended as goneAllocations } from "./admin/views/allocation.js";
import { health } from "./admin/views/health.js";
import { machine } from "./admin/views/machine.js";
import { pump, reflect, relay, rooms, streams } from "./admin/views/products.js";
import { sessions } from "./admin/views/sessions.js";
import { member, played } from "./admin/views/single.js";
import { ended as goneViewers, viewer } from "./admin/views/viewer.js";
import { byId, make } from "./page.js";

interface Entry {
  title: string;
  /** Whether the server has such. */
  is: (about: About) => boolean;
  open: (context: Context) => View;
}

const VIEWS: Record<string, Entry> = {
  machine: { title: "Machine", is: () => true, open: machine },
  streams: { title: "Streams", is: (about) => about.products.rooms, open: streams },
  sessions: { title: "Sessions", is: (about) => about.products.rooms, open: sessions },
  rooms: {
    title: "Rooms",
    is: (about) => about.products.livekit,
    open: (context) => {
      const [, room, identity] = context.route.parts;
      return room !== undefined && identity !== undefined ? member(context, room, identity) : rooms(context);
    },
  },
  pump: {
    title: "Pump",
    is: (about) => about.products.pump,
    open: (context) => {
      const [, id] = context.route.parts;
      return id === undefined ? pump(context) : played(context, id);
    },
  },
  relay: {
    title: "Relay",
    is: (about) => about.products.relay,
    open: (context) => {
      const [, id] = context.route.parts;
      if (id === undefined) return relay(context);
      return id === "ended" ? goneAllocations(context) : allocation(context, id);
    },
  },
  reflect: {
    title: "Reflect",
    is: (about) => about.products.reflect,
    open: (context) => {
      // A stream may be called so, too: its viewers are one part behind its name.
      const [, name, id] = context.route.parts;
      if (name !== "viewer" || id === undefined) return reflect(context);
      return id === "ended" ? goneViewers(context) : viewer(context, id);
    },
  },
  health: { title: "Health", is: (about) => about.doctor, open: health },
};

const samples = new Samples();

/** What tests and the console may look at. */
const admin = { samples, view: null as View | null, about: null as About | null };

declare global {
  interface Window {
    admin: typeof admin;
  }
}

let following = new AbortController();

/** Lets in whoever has shown a token that is good, or needs none. */
async function enter(): Promise<void> {
  const problem = byId("problem", HTMLElement);
  try {
    admin.about = await read<About>("/api/admin");
  } catch (error) {
    const isRefused = error instanceof Refused && (error.status === 401 || error.status === 403);
    problem.textContent = isRefused && !token() ? "" : error instanceof Error ? error.message : String(error);
    show(false);
    return;
  }
  problem.textContent = "";
  show(true);
  showNames(admin.about);
  navigate();
  following.abort();
  following = new AbortController();
  const { signal } = following;
  void follow(samples, (link) => showLink(link), signal);
}

function leave(why = ""): void {
  following.abort();
  keepToken("");
  admin.view?.close();
  admin.view = null;
  samples.all = [];
  byId("problem", HTMLElement).textContent = why;
  show(false);
}

function show(isIn: boolean): void {
  byId("sign-in", HTMLElement).hidden = isIn;
  byId("inside", HTMLElement).hidden = !isIn;
  byId("sign-out", HTMLElement).hidden = !isIn || !token();
  byId("link", HTMLElement).hidden = !isIn;
  if (!isIn) byId("token", HTMLInputElement).focus();
}

function showNames(about: About): void {
  byId("host", HTMLElement).textContent = about.host;
  document.title = `${about.host} – millrace`;
  began = Date.now() - 1000 * about.up_seconds;
  showAge(about);
  const links = Object.entries(VIEWS).filter(([, entry]) => entry.is(about));
  byId("views", HTMLElement).replaceChildren(
    ...links.map(([name, entry]) => {
      const link = make("a", "", entry.title);
      link.href = `#/${name}`;
      link.dataset["view"] = name;
      return make("li", "", link);
    }),
  );
}

let began = 0;

function showAge(about: About): void {
  byId("about", HTMLElement).textContent = `millrace ${about.version}, up ${duration((Date.now() - began) / 1000)}`;
}

function showLink(link: Link): void {
  if (link.kind === "refused") return leave(link.why);
  const place = byId("link", HTMLElement);
  place.dataset["kind"] = link.kind;
  place.textContent = link.kind === "lost" ? "no connection" : link.kind;
  place.title = "why" in link ? link.why : "";
  if (link.kind !== "live") return;
  const index = samples.fields.machine.indexOf("draining");
  byId("draining", HTMLElement).hidden = samples.last?.machine[index] !== 1;
  draw();
}

/** Once a frame at most, and not while nobody looks. */
function draw(): void {
  if (isDue || document.hidden) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    admin.view?.draw(samples);
    if (admin.about) showAge(admin.about);
  });
}

let isDue = false;

function route(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").map(decodeURIComponent), query: new URLSearchParams(query) };
}

function navigate(): void {
  const { about } = admin;
  if (!about) return;
  const wanted = route();
  const name = VIEWS[wanted.parts[0] ?? ""]?.is(about) ? (wanted.parts[0] ?? "") : "machine";
  admin.view?.close();
  const view = VIEWS[name]?.open({ samples, route: wanted, about });
  if (!view) return;
  admin.view = view;
  const main = byId("main", HTMLElement);
  main.replaceChildren(make("h1", "", VIEWS[name]?.title ?? ""), view.element);
  view.draw(samples);
  for (const link of document.querySelectorAll<HTMLElement>("#views a")) {
    const isHere = link.dataset["view"] === name;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    // Where they stand in one line, it may be out of sight.
    if (isHere) link.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}

function start(): void {
  window.admin = admin;
  addEventListener("hashchange", navigate);
  document.addEventListener("visibilitychange", draw);
  byId("sign-in", HTMLFormElement).addEventListener("submit", (event) => {
    event.preventDefault();
    keepToken(byId("token", HTMLInputElement).value.trim());
    byId("token", HTMLInputElement).value = "";
    void enter();
  });
  byId("sign-out", HTMLElement).addEventListener("click", () => leave());
  void enter();
}

start();
