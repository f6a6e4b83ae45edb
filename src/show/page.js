'use strict';
// Turns the still of a text into one that can be read again, token by token.
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const bytes = text => Uint8Array.from(atob(text), character => character.charCodeAt(0)).buffer;
  const total = data.tokens;
  const full = new Float32Array(bytes(data.full));
  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  // The first token of each unit, and the unit of each token.
  const counts = data.counts;
  const texts = document.querySelectorAll('.text');
  const units = texts[0].children.length;
  const first = new Uint32Array(units + 1);
  const unitOf = new Uint32Array(total);
  for (let unit = 0; unit < units; unit++) {
    first[unit + 1] = first[unit] + (counts ? counts[unit] : 1);
    unitOf.fill(unit, first[unit], first[unit + 1]);
  }
  const sides = data.sides.map((side, index) => {
    const left = new Uint16Array(bytes(side.left));
    // Of each layer, its first group, and after the last the number of groups.
    const starts = [0];
    for (const groups of side.groups) starts.push(starts[starts.length - 1] + groups);
    return {
      name: side.name, left, starts, nll: new Float32Array(bytes(side.nll)), spans: texts[index].children,
      shades: new Uint8Array(units).fill(255), text: texts[index], chart: document.querySelectorAll('.chart')[index],
    };
  });
  // Attention under the full cache.
  const attention = data.attention && (() => {
    const floats = text => new Float32Array(bytes(text));
    const { top, received, tokens, shares } = data.attention;
    const of = side => ({ received: floats(side.received), paid: floats(side.paid), shares: floats(side.shares) });
    return { top, received: floats(received), tokens: new Uint16Array(bytes(tokens)), shares: floats(shares), sides: data.attention.sides.map(of) };
  })();
  const SHADES = 10, UNREAD = 100, NOW = 101;

  // What is shown: after how many tokens, of which groups, and which token is looked at.
  let read = data.at, layer = -1, head = -1, chosen = -1;
  const groupsOf = side => {
    if (layer < 0) return [0, side.starts[side.starts.length - 1]];
    const [from, to] = [side.starts[layer], side.starts[layer + 1]];
    return head < 0 || to - from === 1 ? [from, to] : [from + head, from + head + 1];
  };
  // In how many of the groups shown a token is held, after so many tokens.
  const held = (side, token, after) => {
    if (token >= after) return 0;
    const [from, to] = groupsOf(side);
    let count = 0;
    for (let group = from; group < to; group++) count += side.left[group * total + token] >= after;
    return count;
  };
  const share = (side, token, after) => {
    const [from, to] = groupsOf(side);
    return held(side, token, after) / (to - from);
  };

  const shadeOf = (side, unit) => {
    if (first[unit] >= read) return UNREAD;
    if (first[unit] < read && read <= first[unit + 1] && read < total) return NOW;
    let sum = 0;
    for (let token = first[unit]; token < first[unit + 1]; token++) sum += share(side, token, read);
    sum /= first[unit + 1] - first[unit];
    return sum === 0 ? 0 : sum === 1 ? SHADES : Math.min(SHADES - 1, Math.max(1, Math.floor(sum * SHADES)));
  };
  const nameOf = shade => (shade === UNREAD ? 'unread' : shade === NOW ? 'now' : 'h' + shade);

  const controls = document.getElementById('controls');
  const slider = make('input', { type: 'range', min: 1, max: total, value: total, id: 'read' });
  slider.setAttribute('aria-label', 'Tokens read');
  const output = make('output', { htmlFor: 'read' });
  const play = make('button', { type: 'button', textContent: 'Play' });
  const choices = (label, names, choose) => {
    const select = make('select', {}, ...names.map((text, index) => make('option', { value: index - 1, textContent: text })));
    select.setAttribute('aria-label', label);
    select.addEventListener('change', () => choose(Number(select.value)));
    return select;
  };
  const layers = sides[0].starts.length - 1;
  const heads = Math.max(...data.sides.flatMap(side => side.groups));
  const headChoice = choices('Head', ['All heads', ...Array.from({ length: heads }, (_, at) => 'Head ' + at)], value => { head = value; repaint(); });
  const layerChoice = choices('Layer', ['All layers', ...Array.from({ length: layers }, (_, at) => 'Layer ' + at)], value => {
    layer = value;
    headChoice.hidden = layer < 0 || Math.max(...data.sides.map(side => side.groups[layer])) === 1;
    repaint();
  });
  headChoice.hidden = true;
  controls.append(play, slider, output, layerChoice, headChoice);
  controls.hidden = false;
  for (const element of document.querySelectorAll('.scripted')) element.hidden = false;

  const paint = () => {
    for (const side of sides) {
      for (let unit = 0; unit < units; unit++) {
        const shade = shadeOf(side, unit);
        if (side.shades[unit] !== shade) {
          side.shades[unit] = shade;
          side.spans[unit].className = nameOf(shade) + (unitOf[chosen] === unit ? ' chosen' : '');
        }
      }
      if (side.chart) mark(side.chart, read);
    }
    output.textContent = `${read.toLocaleString('en')} of ${total.toLocaleString('en')} tokens`;
    slider.value = read;
    markStrips();
  };
  const repaint = () => {
    paint();
    drawStrips();
    describe();
  };
  const go = to => {
    read = Math.min(total, Math.max(1, to));
    paint();
    describe();
  };
  slider.addEventListener('input', () => { stop(); go(Number(slider.value)); });

  // A text takes twenty seconds, or a tenth of a second a token if it is short.
  let playing = 0, last = 0, exact = 0;
  const stop = () => {
    cancelAnimationFrame(playing);
    playing = 0;
    play.textContent = 'Play';
  };
  const frame = time => {
    exact += (time - last) * Math.min(total / 20000, 1 / 100);
    last = time;
    if (exact > read) {
      go(Math.floor(exact));
      for (const side of sides) keepInSight(side.text, side.spans[unitOf[read - 1]]);
    }
    if (read >= total) stop();
    else playing = requestAnimationFrame(frame);
  };
  play.addEventListener('click', () => {
    if (playing) return stop();
    if (read >= total) go(1);
    play.textContent = 'Pause';
    exact = read;
    playing = requestAnimationFrame(time => { last = time; frame(time); });
  });
  const keepInSight = (text, span) => {
    const top = span.offsetTop - text.scrollTop;
    if (top < 0 || top > text.clientHeight - 40) text.scrollTop = span.offsetTop - text.clientHeight / 2;
  };

  // The chart of costs and its links.
  const mark = (chart, at) => {
    let line = chart.querySelector('line');
    if (!line) {
      line = document.createElementNS('http://www.w3.org/2000/svg', 'line');
      line.setAttribute('vector-effect', 'non-scaling-stroke');
      line.setAttribute('y1', 0);
      line.setAttribute('y2', 100);
      chart.append(line);
    }
    line.setAttribute('x1', at - 1);
    line.setAttribute('x2', at - 1);
  };
  const placeIn = (element, event) => {
    const box = element.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  const lookAt = token => {
    stop();
    choose(token);
    // Before the token is read: what the cache held when it was to be predicted.
    go(token);
    for (const side of sides) keepInSight(side.text, side.spans[unitOf[token]]);
  };
  for (const side of sides) {
    side.chart?.addEventListener('click', event => lookAt(Math.round(placeIn(side.chart, event) * (total - 1))));
  }
  for (const link of document.querySelectorAll('.peaks a')) {
    link.addEventListener('click', event => {
      event.preventDefault();
      lookAt(Number(link.dataset.token));
      sides[0].text.focus();
    });
  }

  // The strips: positions across, time down, as dark as a token is held.
  const strips = document.getElementById('strips');
  const WIDE = 1024, HIGH = 256;
  strips.append(make('h2', { textContent: 'The cache over time' }), make('p', { className: 'axis', textContent: 'Across: the tokens of the text. Down: tokens read. Dark where a token is held. Click to go to a step.' }));
  for (const side of sides) {
    side.canvas = make('canvas', { width: Math.min(total, WIDE), height: Math.min(total, HIGH) });
    side.canvas.setAttribute('role', 'img');
    side.canvas.setAttribute('aria-label', 'The cache of ' + side.name + ' over time');
    const frame = make('div', { className: 'frame' }, side.canvas);
    if (sides.length > 1) strips.append(make('p', { textContent: side.name }));
    strips.append(frame);
    frame.addEventListener('click', event => {
      const box = frame.getBoundingClientRect();
      stop();
      go(Math.round((event.clientY - box.top) / box.height * total));
    });
  }
  strips.hidden = false;
  const colour = () => getComputedStyle(document.documentElement).getPropertyValue('--held').trim().split(' ').map(Number);
  const drawStrips = () => {
    const [red, green, blue] = colour();
    for (const side of sides) {
      const { width, height } = side.canvas;
      const context = side.canvas.getContext('2d');
      const image = context.createImageData(width, height);
      const [from, to] = groupsOf(side);
      const sums = new Float32Array(width * height), tokens = new Uint32Array(width);
      for (let token = 0; token < total; token++) {
        const column = Math.floor(token * width / total);
        tokens[column]++;
        for (let group = from; group < to; group++) {
          // Held after token + 1 to `left` tokens: one at the first row, minus one after the last.
          const begin = Math.ceil((token + 1) / total * height) - 1;
          const end = Math.floor(Math.min(side.left[group * total + token], total) / total * height);
          sums[begin * width + column] += 1;
          if (end < height && end > begin) sums[end * width + column] -= 1;
          else if (end <= begin && begin + 1 < height) sums[(begin + 1) * width + column] -= 1;
        }
      }
      for (let column = 0; column < width; column++) {
        let sum = 0;
        for (let row = 0; row < height; row++) {
          const at = row * width + column;
          sum += sums[at];
          image.data.set([red, green, blue, Math.round(255 * sum / (tokens[column] * (to - from)))], 4 * at);
        }
      }
      side.image = image;
      context.putImageData(image, 0, 0);
    }
    markStrips();
  };
  const markStrips = () => {
    for (const side of sides) {
      if (!side.image) continue;
      const { width, height } = side.canvas;
      const context = side.canvas.getContext('2d');
      context.putImageData(side.image, 0, 0);
      context.fillStyle = '#e0a800';
      context.fillRect(0, Math.min(height - 1, Math.round(read / total * height)), width, 1);
    }
  };

  // One token: when it left each layer.
  const panel = document.getElementById('token');
  const choose = token => {
    const before = chosen;
    chosen = Math.min(total - 1, Math.max(0, token));
    for (const side of sides) {
      if (before >= 0) side.spans[unitOf[before]].classList.remove('chosen');
      side.spans[unitOf[chosen]].classList.add('chosen');
    }
    markAttended();
    describe();
  };
  // What the chosen token attends to most, underlined in its text: [token, share of its attention, part of that which is gone]
  const attended = index => {
    const found = [];
    for (let at = chosen * attention.top; at < (chosen + 1) * attention.top && attention.shares[at] >= 0.01; at++) {
      found.push([attention.tokens[at], attention.shares[at], attention.sides[index].shares[at] / attention.shares[at]]);
    }
    return found;
  };
  const markAttended = () => {
    if (!attention) return;
    sides.forEach((side, index) => {
      for (const span of side.text.querySelectorAll('[data-attended]')) delete span.dataset.attended;
      for (const [token, , gone] of attended(index)) {
        side.spans[unitOf[token]].dataset.attended = gone > 0.5 ? 'gone' : 'held';
      }
    });
  };
  const percent = share => (share > 0 && share < 0.01 ? 'under 1 %' : Math.round(100 * share) + ' %');
  const word = token => make('bdi', {}, make('q', { textContent: sides[0].spans[unitOf[token]].textContent.trim() || '(space)' }));
  const nats = number => (Number.isNaN(number) ? 'none' : number.toFixed(2));
  const describe = () => {
    panel.hidden = chosen < 0;
    if (chosen < 0) return;
    const close = make('button', { type: 'button', textContent: 'Close' });
    close.addEventListener('click', () => { forget(); });
    panel.replaceChildren(close, make('p', {}, 'Token ' + (chosen + 1).toLocaleString('en') + ' ', word(chosen)));
    if (attention) {
      const most = attended(0).slice(0, 5).flatMap(([token, share], at) => [at ? ', ' : '', word(token), ' ' + percent(share)]);
      if (most.length) panel.append(make('p', {}, 'With the full cache it attends most to ', ...most, '.'));
    }
    sides.forEach((side, index) => {
      const [from, to] = groupsOf(side);
      let lived = 0, ends = [];
      for (let group = from; group < to; group++) {
        const left = side.left[group * total + chosen];
        lived += Math.min(left + 1, total) - chosen;
        ends.push(left);
      }
      const gone = ends.filter(left => left < total);
      const still = held(side, chosen, read);
      const parts = [];
      const all = to - from;
      if (chosen < read) parts.push(`held by ${still} of ${all} layers and heads now`);
      const after = step => 'after token ' + (step + 1).toLocaleString('en');
      const last = gone.length < all ? `${all - gone.length} hold it to the end` : 'dropped last ' + (gone.length && after(Math.max(...gone)));
      parts.push(gone.length === 0 ? 'held to the end' : `dropped first ${after(Math.min(...gone))}, ${last}`);
      parts.push(`stayed for ${Math.round(lived / (to - from)).toLocaleString('en')} tokens on average`);
      if (chosen > 0 && full.length) parts.push(`its NLL is ${nats(side.nll[chosen - 1])}, with the full cache ${nats(full[chosen - 1])}`);
      if (attention) {
        const { received, paid } = attention.sides[index];
        if (chosen > 0) parts.push(`${percent(paid[chosen])} of its attention is on tokens that were dropped`);
        if (attention.received[chosen] > 0) parts.push(`${percent(received[chosen] / attention.received[chosen])} of the attention it gets from later tokens comes after it was dropped`);
      }
      const canvas = make('canvas', { width: Math.min(total, WIDE), height: to - from });
      const context = canvas.getContext('2d');
      context.fillStyle = `rgb(${colour().join(' ')} / 0.7)`;
      for (let group = from; group < to; group++) {
        const begin = chosen / total * canvas.width;
        context.fillRect(begin, group - from, Math.max(1, (Math.min(side.left[group * total + chosen] + 1, total) / total) * canvas.width - begin), 1);
      }
      canvas.style.height = Math.max(12, Math.min(160, 5 * (to - from))) + 'px';
      canvas.setAttribute('role', 'img');
      canvas.setAttribute('aria-label', 'When each layer and head held the token');
      panel.append(make('div', { className: 'side' }, make('p', {}, (sides.length > 1 ? side.name + ': ' : '') + parts.join('; ') + '.'), canvas, make('p', { className: 'axis', textContent: 'From top to bottom: layers and heads. Across: the tokens read while each holds it.' })));
    });
  };
  const forget = () => {
    for (const side of sides) {
      side.spans[unitOf[chosen]].classList.remove('chosen');
      for (const span of side.text.querySelectorAll('[data-attended]')) delete span.dataset.attended;
    }
    chosen = -1;
    describe();
    sides[0].text.focus();
  };
  for (const side of sides) {
    side.text.addEventListener('click', event => {
      const unit = Array.prototype.indexOf.call(side.spans, event.target);
      if (unit >= 0 && first[unit] < read) choose(first[unit]);
    });
    side.text.addEventListener('keydown', event => {
      if (event.key === 'Escape' && chosen >= 0) return forget();
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const unit = chosen < 0 ? unitOf[Math.max(0, read - 1)] : Math.min(units - 1, Math.max(0, unitOf[chosen] + step));
      choose(first[unit]);
      keepInSight(side.text, side.spans[unit]);
    });
  }
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
  addEventListener('beforeprint', () => { stop(); });
  repaint();
  // For tests: what the page shows.
  window.shown = { go, held: (index, token, after) => held(sides[index], token, after), choose, sides, full, attention };
})();
