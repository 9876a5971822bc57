// The message box: text, images and files by button, paste, or drag and drop.

import { announce, fill, h, icon, iconButton } from "./dom.js";
import { preferences } from "./store.js";

const TEXT = /^(text\/|application\/(json|xml|javascript|x-yaml|toml|x-sh))/;
const TEXT_NAME = /\.(c|cc|cfg|conf|cpp|cs|css|csv|go|h|html?|ini|java|js|json|jsonl|log|lua|md|mjs|php|py|rb|rs|rst|sh|sql|svg|tex|toml|ts|tsv|txt|xml|ya?ml)$/i;
const LARGEST = 20 * 1024 * 1024;

export class Composer {
  constructor({ send, stop }) {
    this.attached = [];
    this.reading = Promise.resolve(); // ends when all files that were added are read
    this.unread = 0;
    this.send = send;
    this.area = h("textarea", { id: "prompt", rows: "1", placeholder: "Message", "aria-label": "Message", dir: "auto", oninput: () => { this.fit(); this.keepDraft(); }, onkeydown: (event) => this.pressed(event), onpaste: (event) => this.pasted(event) });
    this.chips = h("ul", { class: "chips", "aria-label": "Attachments" });
    this.picker = h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files to attach", onchange: () => { this.add(this.picker.files); this.picker.value = ""; } });
    this.sendButton = iconButton("send", "Send", () => this.submit(), { class: "round primary" });
    this.stopButton = iconButton("stop", "Stop", stop, { class: "round" });
    this.problem = h("p", { class: "error", role: "alert" });
    this.element = h("form", { class: "composer", "aria-label": "New message", onsubmit: (event) => { event.preventDefault(); this.submit(); } },
      this.problem, this.chips,
      h("div", { class: "composer-row" }, iconButton("attach", "Attach images or files", () => this.picker.click()), this.picker, this.area, this.sendButton, this.stopButton));
    this.busy(false);
  }

  busy(running) {
    this.sendButton.hidden = running;
    this.stopButton.hidden = !running;
  }

  say(problem) {
    this.problem.textContent = problem;
  }

  pressed(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!this.sendButton.hidden) this.submit();
    }
  }

  pasted(event) {
    if (event.clipboardData?.files.length) {
      event.preventDefault();
      this.add(event.clipboardData.files);
    }
  }

  fit() {
    this.area.style.height = "auto";
    this.area.style.height = `${Math.min(this.area.scrollHeight, 240)}px`;
  }

  /** The text that is not sent yet outlasts a reload, in this tab. */
  keepDraft() {
    preferences.setInTab("draft", this.area.value || null);
  }

  restoreDraft() {
    this.area.value = preferences.getInTab("draft", "");
    this.fit();
  }

  async submit() {
    while (this.unread) await this.reading;
    this.say("");
    const text = this.area.value;
    if (!text.trim() && !this.attached.length) return;
    const content = [...this.attached.map((each) => each.part)];
    if (text.trim()) content.push({ type: "input_text", text });
    if (!this.send([{ type: "message", role: "user", content }])) return;
    this.area.value = "";
    this.keepDraft();
    this.attached = [];
    this.draw();
    this.fit();
  }

  /** Attach all of `files` in their order. The list may be emptied as soon as this returns, as that of a picker is. */
  add(files) {
    const added = [...files];
    this.unread += 1;
    this.reading = this.reading.then(() => this.read(added)).finally(() => { this.unread -= 1; });
    return this.reading;
  }

  async read(files) {
    const problems = [];
    for (const file of files) {
      try {
        this.attached.push({ name: file.name, part: await partOf(file) });
        announce(`${file.name} is attached`);
      } catch (error) {
        problems.push(error.message);
      }
    }
    if (problems.length) this.say(problems.join(" "));
    this.draw();
    this.area.focus();
  }

  draw() {
    fill(this.chips, this.attached.map((each) => h("li", {},
      each.part.type === "input_image" ? h("img", { src: each.part.image_url, alt: "" }) : icon("attach"), h("span", {}, each.name),
      iconButton("close", `Remove ${each.name}`, () => { this.attached = this.attached.filter((other) => other !== each); this.draw(); }))));
  }
}

async function partOf(file) {
  if (file.size > LARGEST) throw new Error(`${file.name} is too large: at most 20 MB.`);
  if (file.type.startsWith("image/") && file.type !== "image/svg+xml") return { type: "input_image", image_url: await dataUrl(file), detail: "auto" };
  if (TEXT.test(file.type) || TEXT_NAME.test(file.name)) {
    const text = await file.text();
    // A fence that the text does not have.
    const fence = "`".repeat(Math.max(3, ...(text.match(/`{3,}/g) || []).map((run) => run.length + 1)));
    return { type: "input_text", text: `File ${file.name}:\n${fence}\n${text}\n${fence}` };
  }
  return { type: "input_file", filename: file.name, file_data: await dataUrl(file) };
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} could not be read.`));
    reader.readAsDataURL(file);
  });
}
