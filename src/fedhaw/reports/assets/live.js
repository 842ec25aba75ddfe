"use strict";
// Asks the server that sent the page, a second after its last answer, what is new.
(() => {
  const live = document.getElementById("live");
  let seen = Number(live.dataset.version);

  async function news() {
    try {
      const answer = await fetch(`news?seen=${seen}`, { cache: "no-store" });
      delete live.dataset.silent;
      return answer.status === 200 ? await answer.json() : null;
    } catch {
      live.dataset.silent = "The server has ended; this is the last it said.";
      return null;
    }
  }

  async function ask() {
    const told = await news();
    setTimeout(ask, 1000);
    if (!told) return;
    seen = told.version;
    Page.update(told);
  }

  setTimeout(ask, 1000);
})();
