// What the console's pages do beside showing: ages that go on, and content that is kept up to date.
(() => {
  "use strict";

  const spell = (seconds) => {
    const s = Math.max(0, Math.floor(seconds));
    if (s < 60) return `${s}s`;
    if (s < 3600) return `${Math.floor(s / 60)}m ${String(s % 60).padStart(2, "0")}s`;
    if (s < 86400) return `${Math.floor(s / 3600)}h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}m`;
    return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
  };

  // The server gives moments, so that what it says changes only when something happened.
  const age = (root) => {
    for (const time of root.querySelectorAll("time[data-style]")) {
      const at = new Date(time.dateTime);
      const past = (Date.now() - at) / 1000;
      const text = time.dataset.style === "for" ? spell(past) : past < 0 ? `in ${spell(-past)}` : `${spell(past)} ago`;
      if (time.textContent !== text) time.textContent = text;
      if (time.dataset.late) time.classList.toggle("late", past >= +time.dataset.late);
      if (!time.title) time.title = at.toLocaleString();
    }
  };

  // Whoever is typing, has the focus somewhere or has scrolled a table loses nothing: what is the same stays the same element.
  const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName &&
    (a.nodeType !== Node.ELEMENT_NODE || (a.dataset.key || "") === (b.dataset.key || ""));

  const morph = (from, to) => {
    if (from.nodeType !== Node.ELEMENT_NODE) {
      if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
      return;
    }
    if (from.nodeName === "TIME" && from.dateTime === to.dateTime && from.dataset.style === to.dataset.style) return;
    for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
    for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    children(from, to);
  };

  const children = (from, to) => {
    const keyed = new Map();
    for (const child of from.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
    let at = from.firstChild;
    const wanted = [...to.childNodes];
    for (const [i, want] of wanted.entries()) {
      while (at && !wanted.slice(i).some((later) => same(at, later))) { // it has gone: what comes after it moves up
        const gone = at;
        at = at.nextSibling;
        gone.remove();
      }
      const key = want.nodeType === Node.ELEMENT_NODE && want.dataset.key;
      const have = key ? keyed.get(key) : at;
      if (have && same(have, want)) {
        if (have === at) at = at.nextSibling;
        else from.insertBefore(have, at);
        morph(have, want);
      } else {
        from.insertBefore(want, at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  };

  const live = () => {
    const view = document.body.dataset.live;
    const part = document.getElementById("part");
    const sign = document.getElementById("live");
    if (!view || !part || !sign) return;
    const say = (state, text) => {
      if (sign.dataset.state === state && sign.textContent === text) return;
      sign.dataset.state = state;
      sign.textContent = text;
    };
    let source = null;
    let again = 0;
    // The server says how old its data is. A server that hangs says nothing, and one that cannot read says that the data grows old.
    const bound = +document.body.dataset.fresh;
    let until = 0;
    const fresh = (old) => {
      until = performance.now() + bound - old;
      check();
    };
    const check = () => {
      if (!source || sign.dataset.state === "over") return;
      if (performance.now() < until) say("on", "live");
      else if (sign.dataset.state === "on") say("old", `not live: no new data for ${bound / 1000}s`);
    };
    const open = () => {
      clearTimeout(again);
      if (source || document.hidden) return;
      source = new EventSource(`/ui/stream?view=${encodeURIComponent(view)}`);
      source.addEventListener("hello", () => fresh(0));
      source.addEventListener("fresh", (event) => fresh(+event.data));
      source.addEventListener("page", (event) => {
        const template = document.createElement("template"); // which runs and loads nothing, and keeps white space as it is
        template.innerHTML = JSON.parse(event.data);
        const content = template.content;
        age(content);
        children(part, content);
        const named = part.querySelector("[data-title]");
        if (named) document.title = named.dataset.title;
      });
      source.addEventListener("end", (event) => {
        close();
        say("over", JSON.parse(event.data));
      });
      source.addEventListener("error", () => {
        until = 0;
        say("off", "not live: reconnecting");
        if (source && source.readyState === EventSource.CLOSED) { // refused: the browser does not come back by itself
          close();
          again = setTimeout(open, 20000 + Math.random() * 20000);
        }
      });
    };
    const close = () => {
      if (source) source.close();
      source = null;
    };
    // Browsers keep few connections to one server, so a page that nobody sees holds none.
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) open();
      else if (sign.dataset.state !== "over") {
        close();
        say("off", "not live");
      }
    });
    addEventListener("pagehide", close);
    setInterval(check, 1000);
    open();
  };

  // A code that `bullpen console` gave stands behind the #, where no server sees it; it leaves the address before it is used.
  const login = () => {
    const field = document.getElementById("code");
    const code = new URLSearchParams(location.hash.slice(1)).get("code");
    if (!field || !code) return;
    history.replaceState(null, "", location.pathname + location.search);
    field.value = code;
    field.form.submit();
  };

  login();
  age(document);
  setInterval(() => age(document), 1000);
  live();
})();
