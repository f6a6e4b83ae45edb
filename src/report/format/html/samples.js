// One sample under every policy and size: its numbers, their course along the text, and the generated text. The data are read when the
// page opens; `page` has what page.js shares: making elements, what is shown, sorting and saving.
const singleSamples = (page) => {
  const { make, number, shows, sorted, save, read, along, watch } = page;
  const place = document.getElementById("drill");
  let homes = null;
  let chosen = 0;
  let sample = 0;
  let metric = null;
  let part = null;
  let size = null;
  let find = "";
  const pooled = (home, values, at) => {
    if (!values || values.v[at] === null || values.v[at] === undefined) return null;
    const weights = home.weights[values.w];
    const weight = number(Array.isArray(weights) ? weights[at] : weights);
    return { value: number(values.v[at]), weight };
  };
  const shape = {
    exp: (value) => Math.exp(value),
    identity: (value) => value,
    reciprocal: (value) => 1 / value,
    percent: (value) => 100 * value,
  };
  const quantity = (column, mark) =>
    mark === null || !(mark.weight > 0) ? null : shape[column.transform](mark.value / mark.weight);
  const digits = (column, value) => {
    if (value === null) return "";
    const least = Math.abs(value);
    if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : "inf";
    if (least >= 1e6) return value.toExponential(2);
    if (least >= 1000) return value.toFixed(0);
    if (least >= 100) return value.toFixed(1);
    return value.toFixed(
      column.transform === "identity" && least < 10 && !Number.isInteger(value)
        ? 4
        : Number.isInteger(value)
          ? 0
          : 2,
    );
  };
  const cell = (column, value) => {
    const shown = make("td", {}, digits(column, value));
    if (value !== null && !Number.isNaN(value)) shown.dataset.v = String(value);
    return shown;
  };
  const called = (policy) => make("th", { scope: "row" }, make("span", { className: "called" }, policy));
  const places = (home) =>
    home.places.filter(
      ([whole]) => shows("policy", whole.policy) && (whole.size === null || shows("size", whole.size)),
    );
  const choice = (label, options, value, change) => {
    const select = make("select");
    for (const [key, text] of options)
      select.append(make("option", { value: String(key), selected: key === value }, text));
    select.dataset.key = label;
    select.addEventListener("change", () => change(options.find(([key]) => String(key) === select.value)[0]));
    return make("label", {}, label, select);
  };
  const boxed = (title, table) => {
    sorted(table);
    const box = make("div", { className: "box", tabIndex: 0, role: "region", "aria-label": title }, table);
    watch(box);
    return make("div", { className: "sheet" }, box);
  };

  // Policies down, sizes across, one metric.
  const numbers = (home, column, index) => {
    const shown = places(home);
    const sizes = [...new Set(shown.map(([whole]) => whole.size).filter((at) => at !== null))].sort(
      (a, b) => parseFloat(a) - parseFloat(b),
    );
    const heads = sizes.length ? sizes : ["all"];
    const title = `${column.quantity} of this sample, cache size across`;
    const table = make("table", {}, make("caption", {}, title));
    table.append(
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          make("th", { scope: "col" }, "policy"),
          ...heads.map((at) => make("th", { scope: "col" }, String(at))),
        ),
      ),
    );
    const body = make("tbody");
    for (const policy of [...new Set(shown.map(([whole]) => whole.policy))]) {
      const of = shown.filter(([whole]) => whole.policy === policy).map(([whole]) => whole);
      const at = (size) => of.find((whole) => whole.size === size) || of.find((whole) => whole.size === null);
      const values = heads.map((head) => {
        const whole = at(head);
        return whole ? quantity(column, pooled(home, whole.values[index], sample)) : null;
      });
      if (values.every((value) => value === null)) continue;
      body.append(make("tr", {}, called(policy), ...values.map((value) => cell(column, value))));
    }
    table.append(body);
    return boxed(title, table);
  };

  // Generated texts, the largest cache first, so that a reader sees how answers degrade.
  const answers = (home, wholes) => {
    const title = "What was written, the largest cache first";
    const marks = wholes.filter(([, index]) =>
      places(home).some(([whole]) => pooled(home, whole.values[index], sample) !== null),
    );
    const heads = ["policy", "size", "answer", ...marks.map(([column]) => column.quantity)];
    const table = make(
      "table",
      {},
      make("caption", {}, title),
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          ...heads.map((head) => make("th", { scope: "col", className: head === "answer" ? "words" : "" }, head)),
        ),
      ),
    );
    const body = make("tbody");
    const order = [...new Set(home.places.map(([whole]) => whole.policy))];
    const shown = places(home).map(([whole]) => whole);
    const amount = ({ size }) => (size === null ? Infinity : parseFloat(size));
    shown.sort((a, b) => order.indexOf(a.policy) - order.indexOf(b.policy) || amount(b) - amount(a));
    for (const whole of shown) {
      const output = whole.outputs ? whole.outputs[sample] : null;
      if (output === null || output === undefined) continue;
      const text = make("td", { className: "prose", "data-text": "1" }, output === "" ? "(nothing)" : output);
      const at = make("td", {}, whole.size === null ? "–" : String(whole.size));
      at.dataset.v = String(amount(whole));
      body.append(
        make(
          "tr",
          {},
          called(whole.policy),
          at,
          text,
          ...marks.map(([column, index]) =>
            cell(column, quantity(column, pooled(home, whole.values[index], sample))),
          ),
        ),
      );
    }
    table.append(body);
    return body.rows.length
      ? boxed(title, table)
      : make("p", { className: "about" }, "Nothing was written for this sample by the policies shown.");
  };

  // The course of a metric along the sample at one size.
  const course = (home, metric, size) => {
    const parts = home.columns
      .map((column, index) => ({ column, index }))
      .filter(({ column }) => column.slice && column.metric === metric);
    const spots = parts
      .map(({ column, index }) => {
        const [from, to] = column.slice.split(":")[1].split("-").map(Number);
        return { column, index, from, to: to === undefined ? from : to };
      })
      .filter((spot) => Number.isFinite(spot.from) && Number.isFinite(spot.to));
    const lines = places(home)
      .filter(([whole, parts]) => parts && (whole.size === null || whole.size === size))
      .map(([whole, parts]) => ({
        policy: whole.policy,
        spots: spots
          .map((spot) => ({ ...spot, value: quantity(spot.column, pooled(home, parts[spot.index], sample)) }))
          .filter((spot) => spot.value !== null && Number.isFinite(spot.value)),
      }))
      .filter((line) => line.spots.length);
    if (!lines.length)
      return make(
        "p",
        { className: "about" },
        "The numbers by position of the policies shown are not in the page.",
      );
    return along(spots[0].column.quantity, spots, lines);
  };

  const saveRows = (home) => {
    const asked = home.questions.length || home.references.length;
    const lines = [
      [
        "setting",
        "sample",
        "cluster",
        "policy",
        "cache_size",
        "metric",
        "slice",
        "value",
        "weight",
        ...(asked ? ["question", "references"] : []),
        "output",
      ],
    ];
    const [name, cluster] = home.samples[sample];
    for (const [whole, parts] of places(home)) {
      home.columns.forEach((column, index) => {
        if (!shows("metric", column.metric)) return;
        const mark = pooled(home, (column.slice ? parts || {} : whole.values)[index], sample);
        if (mark === null) return;
        const carries = column.metric === "new_tokens" && !column.slice;
        const output = carries && whole.outputs ? whole.outputs[sample] : null;
        const proof = asked
          ? carries
            ? [home.questions[sample], JSON.stringify(home.references[sample] || [])]
            : [null, null]
          : [];
        lines.push([
          home.title,
          name,
          cluster,
          whole.policy,
          whole.size,
          column.metric,
          column.slice,
          mark.value,
          mark.weight,
          ...proof,
          output,
        ]);
      });
    }
    save("sample.csv", lines);
  };

  // Everything is rebuilt; the control that was used keeps the focus.
  const show = () => {
    if (homes === null) return;
    const used = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    render();
    const again = used && Array.from(place.querySelectorAll("[data-key]")).find((one) => one.dataset.key === used);
    if (again) again.focus({ preventScroll: true });
  };
  const render = () => {
    place.replaceChildren();
    if (!homes.some((home) => home.samples.length)) {
      place.append(make("p", { className: "about" }, "There is no single sample to show."));
      return;
    }
    const home = homes[chosen];
    const move = (to) => {
      sample = to;
      show();
    };
    const listed = home.samples
      .map(([name], at) => [at, name])
      .filter(([at, name]) => at === sample || name.toLowerCase().includes(find));
    const bar = make("div", { className: "drill-bar" });
    bar.append(
      choice(
        "Setting",
        homes.map((home, at) => [at, home.title]).filter(([at]) => homes[at].samples.length),
        chosen,
        (to) => {
          chosen = to;
          sample = 0;
          metric = part = size = null;
          find = "";
          show();
        },
      ),
    );
    const finder = make("input", { type: "search", value: find, placeholder: "part of a name" });
    finder.dataset.key = "Find";
    finder.addEventListener("change", () => {
      find = finder.value.trim().toLowerCase();
      const first = home.samples.findIndex(([name]) => name.toLowerCase().includes(find));
      move(first < 0 ? sample : first);
    });
    bar.append(make("label", {}, "Find", finder), choice("Sample", listed, sample, move));
    const order = listed.findIndex(([at]) => at === sample);
    for (const [label, next] of [
      ["Previous", listed[order - 1]],
      ["Next", listed[order + 1]],
    ]) {
      const button = make("button", { type: "button", disabled: next === undefined }, label);
      button.dataset.key = label;
      button.addEventListener("click", () => move(next[0]));
      bar.append(button);
    }
    const taken = make("button", { type: "button", id: "save-rows" }, "Save these rows (CSV)");
    taken.addEventListener("click", () => saveRows(home));
    bar.append(taken);
    place.append(bar);
    if (home.left_out.length) {
      place.append(
        make(
          "p",
          { className: "warn" },
          `Left out to keep the page small enough to open: ${home.left_out.join("; ")}. Report fewer rows at once to see them: for example with --only task=perplexity or --only size=64,512.`,
        ),
      );
    }
    const [name, cluster] = home.samples[sample];
    place.append(
      make("h3", {}, name),
      make("p", { className: "line" }, cluster === name ? home.title : `${home.title} · of ${cluster}`),
    );
    const question = home.questions[sample];
    const references = home.references[sample] || [];
    if (question || references.length) {
      const asked = make("div", { className: "asked" });
      if (question) asked.append(make("p", { className: "prose" }, question));
      if (references.length)
        asked.append(
          make(
            "p",
            { className: "about" },
            references.length > 1 ? "Answers that count as right:" : "The answer that counts as right:",
          ),
          make("ul", {}, ...references.map((text) => make("li", { className: "prose" }, String(text)))),
        );
      place.append(asked);
    }
    const wholes = home.columns
      .map((column, index) => [column, index])
      .filter(([column]) => !column.slice && shows("metric", column.metric));
    const writes = home.places.some(([whole]) => whole.outputs);
    if (writes) {
      place.append(answers(home, wholes));
    } else if (wholes.length) {
      const own = wholes.find(([column]) => column.metric === metric) || wholes[0];
      if (wholes.length > 1) {
        place.append(
          make(
            "div",
            { className: "drill-bar" },
            choice(
              "Metric",
              wholes.map(([column]) => [column.metric, column.quantity]),
              own[0].metric,
              (to) => {
                metric = to;
                show();
              },
            ),
          ),
        );
      }
      place.append(numbers(home, ...own));
    }
    const courses = [
      ...new Map(
        home.columns
          .filter((column) => column.slice && shows("metric", column.metric))
          .map((column) => [column.metric, column.quantity]),
      ),
    ];
    if (courses.length) {
      const sizes = [
        ...new Set(
          places(home)
            .filter(([, parts]) => parts)
            .map(([whole]) => whole.size)
            .filter((at) => at !== null),
        ),
      ].sort((a, b) => parseFloat(a) - parseFloat(b));
      const own = courses.some(([key]) => key === part) ? part : courses[0][0];
      const at = sizes.includes(size) ? size : sizes[Math.floor((sizes.length - 1) / 2)];
      const bar = make("div", { className: "drill-bar" });
      if (courses.length > 1)
        bar.append(
          choice("By position", courses, own, (to) => {
            part = to;
            show();
          }),
        );
      if (sizes.length)
        bar.append(
          choice(
            "Cache size",
            sizes.map((size) => [size, String(size)]),
            at,
            (to) => {
              size = to;
              show();
            },
          ),
        );
      place.append(make("h3", {}, "Along the sample"), bar, course(home, own, at));
    }
  };
  const begin = () => {
    homes = read("rows");
    chosen = Math.max(
      0,
      homes.findIndex((home) => home.samples.length),
    );
    show();
  };
  return { begin, show };
};
