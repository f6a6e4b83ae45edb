// Only in a page that is served: asks now and then whether the report was made again, and loads it in the same place.
(() => {
  const version = document.currentScript.dataset.version;
  const all = (selector) => Array.from(document.querySelectorAll(selector));
  // Counts of samples change from one version to the next.
  const nameOf = (fold) =>
    (fold.closest("section")?.id ?? "") + (fold.querySelector("summary")?.textContent ?? "").replace(/\d+/g, "");
  const heads = () => all("h2[id], h3[id]");
  const top = (element) => element.getBoundingClientRect().top;

  // The place is that of the last heading above the middle of the window: what is above it may grow.
  const save = () => {
    const head = heads().filter((head) => top(head) < innerHeight / 2).pop();
    const folds = all("main details").map((fold) => [nameOf(fold), fold.open]);
    const place = { head: head?.id, offset: head ? top(head) : 0, y: scrollY, folds };
    sessionStorage.setItem("place", JSON.stringify(place));
  };
  const restore = () => {
    const place = JSON.parse(sessionStorage.getItem("place"));
    sessionStorage.removeItem("place");
    if (!place) return;
    history.scrollRestoration = "manual";
    const open = new Map(place.folds);
    for (const fold of all("main details")) fold.open = open.get(nameOf(fold)) ?? fold.open;
    const head = place.head && document.getElementById(place.head);
    scrollTo({ top: head ? scrollY + top(head) - place.offset : place.y, behavior: "instant" });
  };
  addEventListener("load", restore);

  const reload = () => {
    save();
    location.reload();
  };
  const notice = document.createElement("button");
  Object.assign(notice.style, { position: "fixed", right: "1rem", bottom: "1rem", zIndex: 9, padding: "0.5rem" });
  notice.addEventListener("click", reload);
  const say = (text) => {
    notice.textContent = text;
    document.body.append(notice);
  };

  // Filters and words to find would be lost, so then the reader decides.
  let isSet = false;
  for (const kind of ["input", "change"]) {
    document.getElementById("controls")?.addEventListener(kind, () => (isSet = true));
  }
  const ask = async () => {
    const now = await fetch("version").then((answer) => answer.text(), () => null);
    if (now === null) say("Not updated any more: the server has ended");
    else if (now === version) notice.remove();
    else if (isSet) say("New results: load them");
    else return reload();
    setTimeout(ask, 2000);
  };
  setTimeout(ask, 2000);
})();
