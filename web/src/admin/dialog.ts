// Asks before something is done that cannot be taken back, and says what came of it.

import { byId, make } from "../page.js";

export interface Question {
  title: string;
  /** What happens then. */
  says: string;
  /** On the button that does it. */
  label: string;
  run: () => Promise<void>;
  done?: () => void;
}

/** `Escape`, or Cancel, which has the focus: nothing is done. */
export function confirm(question: Question): void {
  const dialog = byId("dialog", HTMLDialogElement);
  const [cancel, act] = [make("button", "", "Cancel"), make("button", "primary danger", question.label)];
  const problem = make("p", "error");
  problem.setAttribute("role", "alert");
  cancel.type = act.type = "button";
  cancel.autofocus = true;
  cancel.addEventListener("click", () => dialog.close());
  act.addEventListener("click", () => {
    act.disabled = true;
    question.run().then(
      () => {
        dialog.close();
        say(`${question.title}: done`);
        question.done?.();
      },
      (error: unknown) => {
        act.disabled = false;
        problem.textContent = error instanceof Error ? error.message : String(error);
      },
    );
  });
  const title = make("h2", "", question.title);
  title.id = "dialog-title";
  dialog.setAttribute("aria-labelledby", title.id);
  dialog.replaceChildren(title, make("p", "", question.says), problem, make("div", "buttons", cancel, act));
  dialog.showModal();
}

/** A line that goes away by itself. */
export function say(text: string): void {
  const toast = byId("toast", HTMLElement);
  toast.textContent = text;
  toast.classList.add("seen");
  clearTimeout(timer);
  timer = setTimeout(() => toast.classList.remove("seen"), 4000);
}

let timer: ReturnType<typeof setTimeout> | undefined;
