// A chart of one sample's numbers along its text: a line for each policy, the full cache dashed. `spots` are
// the parts with `from` and `to` in tokens, `lines` have a policy and, for each spot that was measured, its value.
const courseAlong =
  ({ make, draw, rove, looks }) =>
  (name, spots, lines) => {
    const middle = (spot) => Math.log2((spot.from + spot.to + 1) / 2 + 1);
    const xs = lines.flatMap((line) => line.spots.map(middle));
    const ys = lines.flatMap((line) => line.spots.map((spot) => spot.value));
    // Where a policy is many times worse than another, only a logarithmic axis shows both.
    const isLog = Math.min(...ys) > 0 && Math.max(...ys) > 8 * Math.min(...ys);
    const along = (value) => (isLog ? Math.log10(value) : value);
    const spread = (values, air) => {
      const [low, high] = [Math.min(...values), Math.max(...values)];
      const room = (high - low || Math.abs(high) || 1) * air;
      return [low - room, high + room];
    };
    const [width, height, left, right, top, bottom] = [520, 320, 62, 510, 26, 278];
    const [x0, x1] = spread(xs, 0.04);
    const [y0, y1] = spread(ys.map(along), 0.06);
    const x = (value) => left + ((right - left) * (value - x0)) / (x1 - x0);
    const y = (value) => bottom - ((bottom - top) * (along(value) - y0)) / (y1 - y0);
    const plot = draw("svg", {
      class: "plot",
      viewBox: `0 0 ${width} ${height}`,
      role: "group",
      "aria-label": `${name} by position in this sample`,
    });
    const text = (at, label, attributes = {}) => {
      const element = draw("text", { x: at[0], y: at[1], class: "tick", ...attributes });
      element.textContent = label;
      return element;
    };
    const evenTicks = () => {
      const step = 10 ** Math.floor(Math.log10((y1 - y0) / 4));
      const every = [1, 2, 5, 10].map((digit) => digit * step).find((digit) => (y1 - y0) / digit <= 6);
      const ticks = [];
      for (let at = Math.ceil(y0 / every); at * every <= y1; at += 1) ticks.push(at * every);
      return ticks;
    };
    const logTicks = () => {
      const ticks = [];
      const digits = y1 - y0 > 2 ? [1] : [1, 2, 5];
      for (let power = Math.floor(y0); power <= y1; power += 1)
        ticks.push(...digits.map((digit) => digit * 10 ** power));
      return ticks.filter((tick) => along(tick) >= y0 && along(tick) <= y1);
    };
    const grid = draw("g", { class: "grid" });
    for (const tick of isLog ? logTicks() : evenTicks()) {
      const at = y(tick);
      grid.append(draw("line", { x1: left, x2: right, y1: at, y2: at }));
      grid.append(text([left - 6, at + 4], String(Number(tick.toPrecision(6))), { "text-anchor": "end" }));
    }
    const axis = draw("g", { class: "axis" }, draw("path", { d: `M${left} ${top}V${bottom}H${right}` }));
    let last = -Infinity;
    for (const border of [...new Set(spots.flatMap((spot) => [spot.from, spot.to + 1]))].sort((a, b) => a - b)) {
      const at = x(Math.log2(border + 1));
      if (at < left || at > right + 1) continue;
      axis.append(draw("path", { d: `M${at} ${bottom}v4` }));
      if (at - last > 44) {
        axis.append(text([at, bottom + 17], String(border), { "text-anchor": "middle" }));
        last = at;
      }
    }
    plot.append(
      text([2, 12], name, { class: "name" }),
      grid,
      axis,
      text([(left + right) / 2, height - 4], "position in the sample (tokens)", {
        class: "name",
        "text-anchor": "middle",
      }),
    );
    const legend = make("ul", { className: "legend" });
    for (const line of lines) {
      const [classes, marker, open] = looks[line.policy] || ["", "M3 0A3 3 0 1 1 -3 0A3 3 0 1 1 3 0Z", false];
      const path = line.spots
        .map((spot, at) => `${at ? "L" : "M"}${x(middle(spot)).toFixed(1)} ${y(spot.value).toFixed(1)}`)
        .join("");
      const isFull = line.policy === "full";
      const group = draw(
        "g",
        { class: `line ${classes}` },
        draw("path", { class: isFull ? "reference full" : "stroke", d: path }),
      );
      for (const spot of line.spots) {
        const told = `${line.policy}, ${spot.from === spot.to ? spot.from : `${spot.from} to ${spot.to}`}: ${name} ${spot.value.toPrecision(6)}`;
        const point = draw("g", {
          class: `pt ${isFull ? "full" : ""}`,
          tabindex: "-1",
          role: "img",
          "aria-label": told,
          transform: `translate(${x(middle(spot)).toFixed(1)} ${y(spot.value).toFixed(1)})`,
        });
        point.append(
          draw("circle", { class: "target", r: 10 }),
          isFull
            ? draw("circle", { class: "mark", r: 2 })
            : draw("path", { class: open ? "mark open" : "mark", d: marker }),
        );
        group.append(point);
      }
      plot.append(group);
      const key = draw(
        "svg",
        { class: "sample", viewBox: "0 0 32 14", "aria-hidden": "true" },
        draw("path", { class: isFull ? "reference full" : "stroke", d: "M1 7H31" }),
      );
      if (!isFull)
        key.append(
          draw(
            "g",
            { transform: "translate(16 7)" },
            draw("path", { class: open ? "mark open" : "mark", d: marker }),
          ),
        );
      legend.append(make("li", { className: classes }, key, line.policy));
    }
    rove(plot);
    return make(
      "figure",
      { className: "figure" },
      make("div", { className: "charts alone" }, plot),
      legend,
      make("figcaption", {}, `${name} along this sample; each point is over the tokens between two ticks.`),
    );
  };
