// Conversations are kept in this browser (IndexedDB), or in memory where the browser refuses.

const PATH = new URL("..", import.meta.url).pathname;

/** A name in the browser's storage, of this gateway only: others may be below other paths of the same origin. */
export const stored = (name) => (PATH === "/" ? name : `${name}@${PATH}`);

const NAME = stored("litegate-console");
let opened = null;
const memory = new Map();

function database() {
  opened ||= new Promise((resolve) => {
    try {
      const request = indexedDB.open(NAME, 1);
      request.onupgradeneeded = () => request.result.createObjectStore("conversations", { keyPath: "id" });
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => resolve(null);
    } catch {
      resolve(null);
    }
  });
  return opened;
}

async function act(mode, operation, fallback) {
  const base = await database();
  if (base === null) return fallback();
  return new Promise((resolve, reject) => {
    const transaction = base.transaction("conversations", mode);
    const request = operation(transaction.objectStore("conversations"));
    // Without it the commit waits for this page to hear of the request, and is lost if the page is left before.
    if (mode === "readwrite") transaction.commit();
    transaction.oncomplete = () => resolve(request.result);
    transaction.onerror = () => reject(transaction.error);
  });
}

export const conversations = {
  /** All of them, the newest first. */
  async all() {
    const found = await act("readonly", (store) => store.getAll(), () => [...memory.values()]);
    return found.sort((one, other) => other.updated - one.updated);
  },
  put: (conversation) => act("readwrite", (store) => store.put(conversation), () => memory.set(conversation.id, structuredClone(conversation))),
  remove: (id) => act("readwrite", (store) => store.delete(id), () => memory.delete(id)),
  clear: () => act("readwrite", (store) => store.clear(), () => memory.clear()),
};

function read(storage, name, otherwise) {
  try {
    return JSON.parse(globalThis[storage].getItem(stored(`litegate.${name}`))) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function write(storage, name, value) {
  try {
    globalThis[storage].setItem(stored(`litegate.${name}`), JSON.stringify(value));
  } catch {
    // A full or forbidden storage: the value lasts as long as the page.
  }
}

/** Small preferences; never a key. Those "in the tab" end with it. */
export const preferences = {
  get: (name, otherwise) => read("localStorage", name, otherwise),
  set: (name, value) => write("localStorage", name, value),
  getInTab: (name, otherwise) => read("sessionStorage", name, otherwise),
  setInTab: (name, value) => write("sessionStorage", name, value),
};
