"use strict";
// Tips on points: under the pointer or the focus, with one tab stop for each chart and arrow keys inside it. What a
// point says is its title, which a browser without scripts shows by itself.
const pointTips = ({ all }) => {
  const tip = document.getElementById("tip");
  const name = (point) => {
    const title = point.querySelector("title");
    if (title) {
      // The browser's own tip would cover this one.
      point.setAttribute("aria-label", title.textContent);
      title.remove();
    }
    return point.getAttribute("aria-label");
  };
  const ask = (point) => {
    tip.textContent = name(point);
    tip.hidden = false;
    const [at, own] = [point.getBoundingClientRect(), tip.getBoundingClientRect()];
    const left = Math.min(Math.max(8, at.left + at.width / 2 - own.width / 2), innerWidth - own.width - 8);
    const above = at.top - own.height - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 8 ? above : at.bottom + 8}px`;
  };
  const silence = () => {
    tip.hidden = true;
  };
  const pointOf = (event) => (event.target instanceof Element ? event.target.closest(".pt") : null);
  document.addEventListener("pointerover", (event) => {
    const point = pointOf(event);
    if (point) ask(point);
    else silence();
  });
  document.addEventListener("focusin", (event) => {
    const point = pointOf(event);
    if (point) ask(point);
    else silence();
  });
  document.addEventListener("focusout", silence);
  // Focus may scroll the page; the tip then follows its point.
  document.addEventListener(
    "scroll",
    () => {
      const point = document.activeElement && document.activeElement.closest(".pt");
      if (point && !tip.hidden) ask(point);
      else silence();
    },
    { passive: true },
  );
  const stops = (plot) => all(".pt", plot).filter((point) => !point.closest(".off"));
  const rove = (plot) => {
    const points = stops(plot);
    points.forEach((point, place) => point.setAttribute("tabindex", place === 0 ? "0" : "-1"));
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") silence();
    const point = pointOf(event);
    if (!point) return;
    const own = Array.from(point.parentNode.querySelectorAll(".pt")).filter((other) => !other.closest(".off"));
    const lines = [...new Set(stops(point.ownerSVGElement).map((other) => other.parentNode))];
    const [place, line] = [own.indexOf(point), lines.indexOf(point.parentNode)];
    const near = (lineAt) => {
      const others = all(".pt", lines[lineAt]).filter((other) => !other.closest(".off"));
      return others[Math.min(place, others.length - 1)];
    };
    const moves = {
      ArrowRight: () => own[place + 1],
      ArrowLeft: () => own[place - 1],
      Home: () => own[0],
      End: () => own.at(-1),
      ArrowDown: () => (line + 1 < lines.length ? near(line + 1) : null),
      ArrowUp: () => (line > 0 ? near(line - 1) : null),
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const next = moves[event.key]();
    if (!next) return;
    point.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
  return { rove };
};
