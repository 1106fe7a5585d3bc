// The chat: text streams of the topic that LiveKit's own clients use.

import type { Room } from "livekit-client";
import { byId, make } from "./page.js";

const TOPIC = "lk.chat";
/** Older ones go. */
const MESSAGES_MAX = 500;

export class Chat {
  private unread = 0;
  private readonly panel = byId("chat", HTMLElement);
  private readonly button = byId("chat-button", HTMLButtonElement);
  private readonly messages = byId("messages", HTMLElement);
  private readonly text = byId("message", HTMLInputElement);
  private room: Room | null = null;

  constructor() {
    this.button.addEventListener("click", () => this.open(Boolean(this.panel.hidden)));
    byId("chat-close", HTMLButtonElement).addEventListener("click", () => this.open(false));
    this.panel.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.open(false);
    });
    byId("send", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      void this.send();
    });
  }

  /** Listens in a room; what was said in another is gone. */
  enter(room: Room): void {
    this.room = room;
    this.messages.replaceChildren();
    this.open(false);
    this.count(0);
    room.registerTextStreamHandler(TOPIC, async (reader, { identity }) => {
      const from = room.remoteParticipants.get(identity);
      const text = await reader.readAll().catch(() => null);
      if (text !== null && this.room === room) this.add(from?.name || identity, text, false);
    });
  }

  private async send(): Promise<void> {
    const text = this.text.value.trim();
    if (!text || !this.room) return;
    this.text.value = "";
    try {
      await this.room.localParticipant.sendText(text, { topic: TOPIC });
      this.add(this.room.localParticipant.name || "You", text, true);
    } catch (error) {
      this.text.value = text;
      this.add("Not sent", error instanceof Error ? error.message : String(error), true);
    }
  }

  private add(who: string, text: string, isOwn: boolean): void {
    const time = new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const said = make("li", isOwn ? "own" : "", make("b", "", who), " ", make("small", "", time), make("p", "", text));
    this.messages.append(said);
    while (this.messages.children.length > MESSAGES_MAX) this.messages.firstElementChild?.remove();
    said.scrollIntoView({ block: "nearest" });
    if (this.panel.hidden) this.count(this.unread + 1);
  }

  private open(isOpen: boolean): void {
    const hadFocus = this.panel.contains(document.activeElement);
    this.panel.hidden = !isOpen;
    this.button.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) {
      this.count(0);
      this.messages.lastElementChild?.scrollIntoView({ block: "nearest" });
      this.text.focus();
    } else if (hadFocus) this.button.focus();
  }

  private count(unread: number): void {
    this.unread = unread;
    const badge = byId("unread", HTMLElement);
    badge.hidden = unread === 0;
    badge.textContent = String(unread);
    badge.setAttribute("aria-label", `${unread} unread`);
  }
}
