/* Browsers refuse workers on pages opened from the disk. The search's worker then runs in a hidden frame instead. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      this.ready = new Promise((resolve) => { this.frame.onload = resolve; });
      inside.document.open();
      inside.document.write("<!doctype html><body></body>");
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      inside.importScripts = (...urls) => urls.reduce(
        (before, one) => before.then(() => new Promise((resolve, reject) => {
          const script = inside.document.createElement("script");
          script.src = one;
          script.onload = resolve;
          script.onerror = reject;
          inside.document.body.appendChild(script);
        })), Promise.resolve());
      this.ready = inside.importScripts(url);
      inside.document.close();
    }
    postMessage(data) {
      const inside = this.frame.contentWindow;
      this.ready.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
    terminate() { this.frame.remove(); }
  };
}
