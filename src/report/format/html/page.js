// The page's interaction: sorting, filtering, tips on points, single samples. Texts of data sets
// and models only ever become text nodes; nothing is fetched and nothing is stored.
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const number = (value) =>
    typeof value !== "string" ? value : { NaN: NaN, inf: Infinity, "-inf": -Infinity }[value];

  // An element with properties, attributes (names with a dash or aria's) and children.
  const make = (name, properties = {}, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
      if (value === undefined || value === null) continue;
      if (key in element && !key.includes("-")) element[key] = value;
      else element.setAttribute(key, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  };
  const draw = (name, attributes = {}, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  // ---- what is shown: hidden values by facet, and words to find
  const facets = ["policy", "size", "metric", "task", "model", "dataset"];
  const named = {
    policy: "Policies",
    size: "Sizes",
    metric: "Metrics",
    task: "Tasks",
    model: "Models",
    dataset: "Data sets",
  };
  const hidden = Object.fromEntries(facets.map((facet) => [facet, new Set()]));
  let words = [];
  const shows = (facet, value) => value === undefined || value === null || !hidden[facet].has(String(value));
  const finds = (text) => words.every((word) => text.includes(word));

  // ---- the page's own tables and charts, read once
  const lower = (element, selector) => {
    const found = element && element.querySelector(selector);
    return found ? found.textContent.toLowerCase() : "";
  };
  const subject = ({ dataset: { task, model, dataset } }) =>
    [task, model, dataset].filter(Boolean).join(" ").toLowerCase();
  const sheets = all(".sheet").map((sheet) => {
    const panel = sheet.closest(".panel");
    const part = sheet.closest(".part");
    const base = [
      lower(part, "h2"),
      subject(part),
      panel ? lower(panel, "summary") : "",
      lower(sheet, "caption"),
    ].join(" ");
    const rows = all("tbody tr", sheet).map((row) => ({
      row,
      text: `${base} ${lower(row, "th")}`,
      policy: row.dataset.policy,
      size: row.dataset.size,
    }));
    return { sheet, panel, part, rows, size: sheet.dataset.size };
  });
  const columns = all("th[data-size], td[data-size]");
  const numbers = all(".sheet td[data-v]");
  const charts = all(".figure").map((figure) => {
    const panel = figure.closest(".panel");
    const part = figure.closest(".part");
    const text = [
      lower(part, "h2"),
      subject(part),
      panel ? lower(panel, "summary") : "",
      lower(figure, "figcaption"),
    ].join(" ");
    return { figure, text };
  });
  const parts = all(".part").filter((part) => part.querySelector(".sheet"));
  const panels = all(".panel");

  const apply = () => {
    const off = (element, is) => element.classList.toggle("off", is);
    for (const column of columns) off(column, !shows("size", column.dataset.size));
    for (const entry of sheets) {
      const is = ({ text, policy, size }) => shows("policy", policy) && shows("size", size) && finds(text);
      for (const row of entry.rows) off(row.row, !is(row));
      // Lines that only compare with policies, such as chance, are hidden without them.
      const counted = entry.rows.some((row) => row.policy) ? entry.rows.filter((row) => row.policy) : entry.rows;
      entry.empty = !counted.some(is) || !shows("size", entry.size);
      off(entry.sheet, entry.empty);
    }
    for (const { figure, text } of charts) {
      for (const line of all("[data-policy]", figure)) {
        off(
          line,
          !(shows("policy", line.dataset.policy) && finds(`${text} ${line.dataset.policy.toLowerCase()}`)),
        );
      }
      for (const point of all(".pt[data-size]", figure)) off(point, !shows("size", point.dataset.size));
      for (const chart of all(".chart", figure)) {
        const policies = all(".line .pt", chart);
        const isOff = (point) => point.classList.contains("off") || point.parentNode.classList.contains("off");
        off(chart, policies.length > 0 && policies.every(isOff));
      }
    }
    for (const panel of panels) {
      const own = sheets.filter((entry) => panel.contains(entry.sheet));
      const is = !shows("metric", panel.dataset.metric) || (own.length > 0 && own.every((entry) => entry.empty));
      for (const entry of own) entry.empty = is;
      off(panel, is);
    }
    for (const part of parts) {
      const fits = ["task", "model", "dataset"].every((facet) => shows(facet, part.dataset[facet]));
      off(part, !fits || sheets.every((entry) => entry.part !== part || entry.empty));
    }
    const shown = numbers.filter((cell) => !cell.closest(".off")).length;
    counter.textContent = `${shown} of ${numbers.length} numbers`;
    all("svg.plot").forEach(rove);
    drill.show();
  };

  // ---- sorting: a third click restores the original order
  const sorted = (table) => {
    const body = table.tBodies[0];
    const first = Array.from(body.rows);
    all("thead th", table).forEach((head, place) => {
      const button = make("button", { type: "button", className: "sort" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const order = before === "ascending" ? "descending" : before === "descending" ? null : "ascending";
        for (const other of all("thead th", table)) other.removeAttribute("aria-sort");
        if (order === null) {
          body.append(...first);
          return;
        }
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const key = (row) => {
          const cell = row.cells[place];
          if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
          return cell.textContent === "" || (cell.tagName === "TD" && !cell.dataset.text)
            ? null
            : cell.textContent;
        };
        const compare = (a, b) => {
          const [left, right] = [key(a), key(b)];
          if (left === null || right === null) return (left === null) - (right === null);
          if (typeof left === "number" && typeof right === "number") return sign * (left - right || 0);
          return sign * String(left).localeCompare(String(right), "en", { numeric: true });
        };
        body.append(...Array.from(first).sort(compare));
      });
    });
  };

  // ---- export
  const field = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value !== "string") return String(value);
    // Spreadsheets evaluate texts that begin like formulas; numbers are left alone.
    const safe = /^[=+\-@\t\r]/.test(value) && !/^(-?inf|NaN)$/.test(value) ? `'${value}` : value;
    return /[",\n\r]|^ | $/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const save = (name, lines) => {
    const text = lines.map((line) => line.map(field).join(",")).join("\n") + "\n";
    const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    const link = make("a", { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  };
  // ---- tables and pictures wider than their box say so, by the style sheet
  const watcher = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const box = target.closest(".box");
      box.classList.toggle("scrolls", box.scrollWidth > box.clientWidth);
    }
  });
  const watch = (box) => {
    watcher.observe(box);
    watcher.observe(box.firstElementChild);
  };

  const { rove } = pointTips({ all });
  const along = courseAlong({ make, draw, rove, looks: read("looks") });
  const drill = singleSamples({ make, number, shows, sorted, save, read, along, watch });

  // ---- the controls
  const controls = document.getElementById("controls");
  const counter = make("span", { className: "count", role: "status" });
  const values = (facet) => {
    const found = [...new Set(all(`[data-${facet}]`).map((element) => element.dataset[facet]))];
    // Shares such as "25%" follow entries.
    const isShare = (size) => Number(size.endsWith("%"));
    const bySize = (a, b) => isShare(a) - isShare(b) || parseFloat(a) - parseFloat(b);
    return facet === "size" ? found.sort(bySize) : found;
  };
  const label = (facet, value) => {
    const panel = facet === "metric" && panels.find((panel) => panel.dataset.metric === value);
    return panel ? panel.dataset.quantity : value;
  };
  const menus = [];
  const menu = (facet) => {
    const options = values(facet);
    if (options.length < 2) return null;
    const summary = make("summary", {}, named[facet]);
    const list = make("div");
    const boxes = options.map((value) => {
      const box = make("input", { type: "checkbox", checked: true, value: String(value) });
      box.addEventListener("change", () => {
        hidden[facet][box.checked ? "delete" : "add"](String(value));
        update();
      });
      return [box, make("label", {}, box, label(facet, value))];
    });
    const every = (checked) => {
      for (const [box] of boxes) {
        box.checked = checked;
        hidden[facet][checked ? "delete" : "add"](box.value);
      }
      update();
    };
    const button = (text, checked) => {
      const button = make("button", { type: "button" }, text);
      button.addEventListener("click", () => every(checked));
      return button;
    };
    list.append(
      make("div", { className: "all" }, button("All", true), button("None", false)),
      ...boxes.map(([, shown]) => shown),
    );
    const element = make("details", { className: "menu" }, summary, list);
    element.dataset.facet = facet;
    const update = () => {
      const kept = boxes.filter(([box]) => box.checked).length;
      element.classList.toggle("active", kept < boxes.length);
      summary.textContent = kept < boxes.length ? `${named[facet]} (${kept} of ${boxes.length})` : named[facet];
      apply();
    };
    menus.push({
      element,
      reset: () => {
        for (const [box] of boxes) box.checked = true;
        hidden[facet].clear();
        element.classList.remove("active");
        summary.textContent = named[facet];
      },
    });
    return element;
  };
  const search = make("input", { type: "search", placeholder: "policy, metric …" });
  search.addEventListener("input", () => {
    words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    apply();
  });
  const select = (text, options, change) => {
    const element = make("select", {}, ...options.map(([value, label]) => make("option", { value }, label)));
    element.addEventListener("change", () => change(element.value));
    return make("label", {}, text, element);
  };
  const push = (text, id, act) => {
    const button = make("button", { type: "button", id }, text);
    button.addEventListener("click", act);
    return button;
  };
  const row = make("div", { className: "row" });
  const tools = make("details", { className: "tools" }, make("summary", {}, "Find, filter, colours"), row);
  controls.append(tools);
  row.append(make("label", {}, "Find", search), ...facets.map(menu).filter(Boolean));
  if (document.querySelector(".both")) {
    row.append(
      select(
        "Axis",
        [
          ["linear", "linear"],
          ["log", "log"],
        ],
        (value) => {
          root.dataset.scale = value;
        },
      ),
    );
  }
  row.append(
    select(
      "Colours",
      [
        ["", "system"],
        ["light", "light"],
        ["dark", "dark"],
      ],
      (value) => {
        if (value) root.dataset.theme = value;
        else delete root.dataset.theme;
      },
    ),
    push("Open all", "open-all", (event) => {
      const open = !all("details.fold").every((fold) => fold.open);
      for (const fold of all("details.fold")) fold.open = open;
      event.target.textContent = open ? "Fold all" : "Open all";
    }),
    push("Reset", "reset", () => {
      search.value = "";
      words = [];
      for (const { reset } of menus) reset();
      apply();
    }),
    counter,
  );
  // A click elsewhere or the escape key closes a menu.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") for (const { element } of menus) element.open = false;
  });
  document.addEventListener("click", (event) => {
    for (const { element } of menus) if (element.open && !element.contains(event.target)) element.open = false;
  });
  controls.hidden = false;

  // ---- on a phone the controls and long lists are folded, so that the first figure is on the first screen
  const isNarrow = matchMedia("(max-width: 40rem)").matches;
  tools.open = !isNarrow;
  for (const list of all("details.names")) list.open = !isNarrow || all("li", list).length <= 6;

  // ---- printing shows everything
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details.fold:not([open]), details.names:not([open])");
    for (const fold of folded) fold.open = true;
  });
  addEventListener("afterprint", () => {
    for (const fold of folded) fold.open = false;
  });

  all(".sheet table").forEach(sorted);
  all(".box").forEach(watch);
  drill.begin();
  apply();
  root.dataset.ready = "yes";
})();
