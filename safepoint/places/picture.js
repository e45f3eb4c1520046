// The picture that moves: draws the window of a trace that the page holds, again with each change of the view.
//
// (1) Elements are made one by one and text is only ever text: a file name in a trace could else be markup.
// (2) Bars of one kind in a row are one path, and what is closer than a pixel is one bar: 20 000 calls are drawn in
//     some milliseconds. What lies under the pointer is looked up in the numbers, not in the page.
// Times are ns since the window begins; `view` is what is seen, [begin, end].
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const svg = document.querySelector("svg.diagram"), strip = document.querySelector("svg.overview");
  const space = "http://www.w3.org/2000/svg";
  const rows = [], messages = [], bySent = new Map(), byReceived = new Map();
  let view = [...data.view], picked = -1, width = 840, focused = -1, current = -1, waiting = false, spots = [];

  const fixed = (value) => value.toFixed(1);
  const box = (left, top, wide, high) => `M${fixed(left)},${fixed(top)}h${fixed(wide)}v${fixed(high)}h${fixed(-wide)}z`;
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const sums = (numbers) => { let sum = 0; return numbers.map((number) => (sum += number)); };
  const middle = (row) => data.top + (row + 0.61) * data.tall;
  const right = () => width - data.pad;
  const x = (at) => data.left + (at - view[0]) * (right() - data.left) / (view[1] - view[0]);
  const time = (at) => view[0] + (at - data.left) * (view[1] - view[0]) / (right() - data.left);

  function element(name, attributes, ...inside) {
    const made = document.createElementNS(name === "div" || name === "b" || name === "span" || name === "button"
      || name === "output" ? "http://www.w3.org/1999/xhtml" : space, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...inside);
    return made;
  }

  // Words.

  function lasting(ns) {
    const [unit, name] = ns >= 1e9 ? [1e9, "s"] : ns >= 1e6 ? [1e6, "ms"] : [1e3, "µs"];
    return `${Number((ns / unit).toPrecision(3))} ${name}`;
  }

  function moment(at) {
    return `${((at + data.begin) / 1e9).toFixed(view[1] - view[0] < 1e6 ? 7 : 6)} s`;
  }

  function bytes(many) {
    const power = many < 1000 ? 0 : Math.min(5, Math.floor(Math.log10(many) / 3));
    if (many < 0) return "size unknown";
    return `${Number((many / 1000 ** power).toPrecision(3))} ${["B", "kB", "MB", "GB", "TB", "PB"][power]}`;
  }

  const times = (many, one) => `${many} ${one}${many === 1 ? "" : "s"}`;
  const where = (site) => data.sites[site][0] + (data.sites[site][1] ? ` in ${data.sites[site][1]}` : "");

  function ofMessage(message) {
    const last = message.received >= 0 || !(message.lost & 2);
    const posted = message.postedAt !== message.receivedAt && last ? `, posted ${data.sites[message.postedAt][0]}` : "";
    const received = `received ${data.sites[message.receivedAt][0]} at ${moment(message.end)}${posted}`;
    const what = `tag ${message.tag}, ${bytes(message.bytes)}, ${data.objects[message.comm] ?? "?"}`;
    return [
      message.lost & 1 ? "never sent" : `sent ${data.sites[message.sentAt][0]} at ${moment(message.begin)}`,
      message.lost & 2 ? "never received" : received,
      `rank ${data.ranks[message.from]} → rank ${data.ranks[message.to]}, ${what}`,
    ];
  }

  // What the page holds.

  function unpack() {
    const enter = sums(data.enter);
    let begin = 0;
    data.labels.forEach((label, row) => {
      rows.push({ label, begin, end: begin + data.many[row], first: data.first[row] });
      begin += data.many[row];
    });
    data.enter = enter;
    data.leave = enter.map((at, call) => (data.lasts[call] < 0 ? data.span - data.begin : at + data.lasts[call]));
    const all = data.messages, starts = sums(all.begin);
    starts.forEach((start, number) => {
      const message = {
        begin: start, end: start + all.under_way[number], from: all.from[number], to: all.to[number],
        sent: all.sent[number], received: all.received[number], sentAt: all.sent_at[number], lost: all.lost[number],
        postedAt: all.posted_at[number], receivedAt: all.received_at[number], tag: all.tag[number],
        comm: all.comm[number], bytes: all.bytes[number], blocking: number < all.labels.length,
      };
      messages.push(message);
      for (const [calls, call] of [[bySent, message.sent], [byReceived, message.received]]) {
        if (call >= 0) calls.set(call, [...(calls.get(call) ?? []), message]);
      }
    });
    data.places.at = sums(data.places.at);
    for (const line of data.lines) line.times = line.times.map(sums);
  }

  function firstAfter(row, at) {  // the first call of a row that enters then or later
    let { begin: low, end: high } = row;
    while (low < high) {
      const half = (low + high) >> 1;
      if (data.enter[half] < at) low = half + 1; else high = half;
    }
    return low;
  }

  // Drawing.

  function draw() {
    waiting = false;
    width = Math.max(420, svg.parentNode.clientWidth);
    const bottom = data.top + rows.length * data.tall;
    svg.setAttribute("viewBox", `0 0 ${width} ${bottom + data.bottom}`);
    svg.querySelector("#plot rect").setAttribute("width", right() - data.left + 1);
    spots = [];
    rows.forEach(drawRow);
    svg.querySelector(".time").replaceChildren(...ticks(bottom));
    svg.querySelector(".over").replaceChildren(
      drawMessages(), ...drawPlaces(), ...drawVisits(), ...drawFlags(), ...drawBlocking(bottom));
    const seen = strip.querySelector(".view"), scale = 1000 / data.span;
    seen.setAttribute("x", (view[0] + data.begin) * scale);
    seen.setAttribute("width", Math.max(2, (view[1] - view[0]) * scale));
  }

  function later() {
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  }

  function drawRow(row, number) {
    const top = data.top + number * data.tall, room = data.tall * 0.62, upper = top + 0.3 * data.tall;
    const open = data.kinds.map(() => null), paths = data.kinds.map(() => ""), letters = [];
    let calls = 0, bars = 0;
    const close = (kind) => {
      const [name, letter, from, high] = data.kinds[kind], [begin, end] = open[kind];
      const wide = Math.max(1.2, end - begin), y = upper + from * room, tall = high * room;
      paths[kind] += box(begin, y, wide, tall);
      bars += 1;
      if (wide < 10 || data.tall < 18) return;
      const style = { x: begin + wide / 2, y: y + tall / 2 + 3.5, class: `letter ${name}-letter` };
      letters.push(element("text", style, letter));
    };
    const inside = (at) => clamp(x(at), data.left, right()), first = Math.max(row.begin, firstAfter(row, view[0]) - 1);
    for (let call = first; call < row.end && data.enter[call] <= view[1]; call++) {
      if (data.leave[call] < view[0]) continue;
      const begin = inside(data.enter[call]), end = inside(data.leave[call]);
      const kind = data.kind[data.function[call]], last = open[kind];
      calls += 1;
      if (last && begin - last[1] < 1) { last[1] = Math.max(last[1], end); continue; }
      if (last) close(kind);
      open[kind] = [begin, end];
    }
    open.forEach((last, kind) => { if (last) close(kind); });
    const made = [];
    paths.forEach((d, kind) => {
      if (d) made.push(element("path", { d, class: data.kinds[kind][0] }));
      if (d && data.kinds[kind][0] === "memory") made.push(element("path", { d, fill: "url(#memory)" }));
    });
    row.group.querySelector(".back").setAttribute("width", right());
    row.group.querySelector(".closed").setAttribute("d", greyOf(row, top));
    row.group.querySelector(".bars").replaceChildren(...made, ...letters);
    const words = `${row.label}: ${times(calls, "call")} in view, drawn as ${times(bars, "bar")}`;
    row.group.setAttribute("aria-label", words);
  }

  function greyOf(row, top) {
    let d = "";
    for (const [begin, end] of row.closed) {
      const from = clamp(x(begin), data.left, right()), to = clamp(x(end), data.left, right());
      if (to - from > 0.3) d += box(from, top, to - from, data.tall);
    }
    return d;
  }

  function ticks(bottom) {
    const made = [], begin = view[0] + data.begin, end = view[1] + data.begin;
    const least = 96 * (view[1] - view[0]) / (right() - data.left), power = 10 ** Math.floor(Math.log10(least));
    const step = Math.max(1, [1, 2, 5, 10].find((base) => base * power >= least) * power);
    const [unit, name] = [[1e9, "s"], [1e6, "ms"]].find(([one]) => end >= one) ?? [1e3, "µs"];
    const digits = Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-9));
    for (let at = Math.ceil(begin / step) * step; at <= end; at += step) {
      const place = x(at - data.begin);
      made.push(element("line", { x1: place, x2: place, y1: data.top - 4, y2: bottom, class: "grid" }));
      const style = { x: place, y: data.top - 9, class: "tick middle" };
      if (place < right() - 24) made.push(element("text", style, `${(at / unit).toFixed(digits)} ${name}`));
    }
    return made;
  }

  function arrow(message) {  // its ends, cut at the edges; none if it is not in view
    const begin = x(message.begin), end = x(message.end);
    if (Math.max(begin, end) < data.left || Math.min(begin, end) > right()) return null;
    const edge = (at) => clamp(at, data.left - 40, right() + 40);
    const share = (at) => (edge(at) - begin) / (end - begin || 1);
    const y0 = middle(message.from), y1 = middle(message.to), last = end === begin ? 1 : share(end);
    return [edge(begin), y0 + (y1 - y0) * share(begin), edge(end), y0 + (y1 - y0) * last];
  }

  function shape([x0, y0, x1, y1], head) {  // the line and the head of an arrow
    const up = y0 === y1 ? -0.9 * data.tall : 0, turn = Math.atan2(y1 - y0 - 2 * up, x1 - x0);
    const point = (across, down) => `${fixed(across)},${fixed(down)}`;
    const wing = (by) => point(x1 - head * Math.cos(turn + by), y1 - head * Math.sin(turn + by));
    const line = `M${point(x0, y0)}Q${point((x0 + x1) / 2, (y0 + y1) / 2 + up)},${point(x1, y1)}`;
    return [line, `M${wing(0.42)}L${point(x1, y1)}L${wing(-0.42)}`];
  }

  function drawMessages() {
    const seen = new Set();
    for (const message of messages) {
      const ends = message.blocking ? null : arrow(message);
      if (ends) seen.add(ends.map(Math.round).join());
    }
    const d = [...seen].map((ends) => shape(ends.split(",").map(Number), 5.5).join("")).join("");
    return element("path", { d, class: seen.size > 400 ? "message many" : "message" });
  }

  function drawPlaces() {
    const made = [], gaps = [...data.places.gaps];
    let change = 0, last = -1;
    data.places.at.forEach((at, place) => {
      for (const last = change + data.places.changes[place]; change < last; change++) {
        gaps[data.places.row[change]] += data.places.by[change];
      }
      const slot = Math.floor(x(at) / 5);
      if (at < view[0] || at > view[1]) return;
      if (slot === last) { spots.at(-1).many += 1; return; }
      last = slot;
      const stops = gaps.map((gap, row) => x(inGap(rows[row], gap, at)));
      spots.push({ stops, many: 1 });
      const steps = stops.map((stop, row) => `H${fixed(stop)}V${fixed(data.top + (row + 1) * data.tall)}`).join("");
      made.push(element("path", { d: `M${fixed(stops[0])},${data.top}${steps}`, class: "place" }));
    });
    if (made.length > 40) made.forEach((line) => line.setAttribute("class", "place many"));
    return made;
  }

  function inGap(row, gap, at) {  // the moment of the gap that is nearest to this one
    const after = row.begin + gap - row.first;
    const low = after > row.begin ? data.leave[after - 1] : -Infinity;
    const high = after < row.end ? data.enter[after] : Infinity;
    return clamp(at, low, Math.max(low, high));
  }

  function flagAt(place, top, legal, hide, many) {
    const wide = clamp(data.tall * 0.26, 7, 16), unit = wide / 10, y = top + 1, at = fixed(place);
    const tick = [[2.2, 5.2], [4.3, 7.4], [7.9, 2.9]], cross = [[2.6, 2.6], [7.4, 7.4], [5, 5], [7.4, 2.6], [2.6, 7.4]];
    const lines = (legal ? tick : cross).map(([a, b]) => `${fixed(place + a * unit)},${fixed(y + b * unit)}`).join("L");
    const cloth = hide ? `h${wide}v${wide}h${-wide}z` : `l${wide * 0.7},${wide * 0.35}l${-wide * 0.7},${wide * 0.35}z`;
    const made = [
      element("line", { x1: at, x2: at, y1: y, y2: hide ? top + data.tall : y + wide, class: "pole" }),
      element("path", { d: `M${at},${y}${cloth}`, class: hide || legal ? "pennant" : "pennant hollow" }),
    ];
    if (hide) made.push(element("path", { d: `M${lines}`, class: "sign" }));
    const style = { x: place + wide + 2, y: top + wide / 2 + 5, class: "times" };
    if (many > 1) made.push(element("text", style, `×${many}`));
    return element("g", { class: `${hide ? "hide" : "mark"} ${legal ? "good" : "bad"}` }, ...made);
  }

  function drawFlags() {
    const groups = new Map();
    for (const mark of data.marks) {
      const place = x(mark[1]), key = `${mark[0]},${mark[3]},${Math.floor(place / data.slot)}`;
      if (place >= data.left && place <= right()) groups.set(key, [...(groups.get(key) ?? []), mark]);
    }
    return [...groups.values()].sort((a, b) => a[0][3] - b[0][3]).map((marks) => {
      const first = marks.find((mark) => !mark[4]) ?? marks[0];
      return flagAt(x(first[1]), data.top + first[0] * data.tall, Boolean(first[4]), Boolean(first[3]), marks.length);
    });
  }

  function drawBlocking(bottom) {
    const made = [];
    let label = null;
    messages.slice(0, data.messages.labels.length).forEach((message, number) => {
      const ends = arrow(message);
      if (!ends) return;
      const [d, head] = shape(ends, 13);
      const line = element("path", { d, class: message.lost ? "blocking lost" : "blocking" });
      const end = element("path", { d: `${head}z`, class: "head" });
      made.push(element("g", { class: "red" }, element("path", { d, class: "halo" }), line, end));
      label = label ?? labelOf(data.messages.labels[number], ends, bottom);
    });
    return label ? [...made, label] : made;
  }

  function labelOf([first, second], ends, bottom) {  // where there is room: at an end of the arrow, below it, above it
    const [[left, low], [end, high]] = [ends.slice(0, 2), ends.slice(2)].sort((a, b) => a[0] - b[0]);
    const wide = Math.max(7.8 * first.length, 5.9 * second.length) + 16, half = [(left + end) / 2, (low + high) / 2];
    const under = Math.max(low, high) + 16, over = Math.max(data.top + 2, Math.min(low, high) - 54);
    const below = under + 38 <= bottom ? under : over;
    const [place, y, from, to] = end + 16 + wide <= right() ? [end + 16, high - 18, [end, high], [end + 16, high]]
      : left - 16 - wide >= data.left ? [left - 16 - wide, low - 18, [left, low], [left - 16, low]]
      : [clamp(half[0] - wide / 2, data.left, right() - wide), below, half, [half[0], below + 18]];
    const top = clamp(y, data.top + 2, bottom - 38);
    return element("g", { class: "said" },
      element("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], class: "leader" }),
      element("rect", { x: place, y: top, width: wide, height: 36, rx: 4, class: "label" }),
      element("text", { x: place + 8, y: top + 15, class: "label-text" }, first),
      element("text", { x: place + 8, y: top + 29, class: "label-more" }, second));
  }

  function drawVisits() {
    const line = data.lines[picked], made = [];
    let last = -Infinity;
    (line?.times ?? []).forEach((stops, visit) => {
      const places = stops.map(x), bad = !line.legal[visit];
      if (Math.max(...places) < data.left || Math.min(...places) > right() || (places[0] - last < 4 && !bad)) return;
      last = places[0];
      const d = places.map((stop, row) => `${fixed(stop)},${fixed(data.top + row * data.tall)}v${data.tall}`).join("L");
      made.push(element("path", { d: `M${d}`, class: "visit" }));
      made.push(element("circle", { cx: places[0], cy: data.top - 1, r: 4, class: `spot ${bad ? "bad" : "good"}` }));
      const sign = bad ? "m-2.4,-2.4l4.8,4.8m0,-4.8l-4.8,4.8" : "m-2.4,0l1.8,2l3,-4";
      made.push(element("path", { d: `M${places[0].toFixed(1)},${data.top - 1}${sign}`, class: "sign" }));
    });
    return made;
  }

  // What lies under the pointer.

  function under(px, py) {
    const number = Math.floor((py - data.top) / data.tall), row = rows[number];
    const ends = messages.map((message) => [message, arrow(message)]);
    const near = ends.filter(([, each]) => each && apart(each, px, py) < 6);
    const red = near.find(([message]) => message.blocking);
    if (red) return ["This message blocks", ...ofMessage(red[0])];
    if (!row || px < data.left) return null;
    const marks = data.marks.filter((mark) => mark[0] === number && x(mark[1]) <= px + 1 && px < x(mark[1]) + 16);
    const high = (py - data.top) % data.tall < Math.max(8, data.tall * 0.28);  // where the flags are
    if (marks.length && high) return marks.flatMap(ofMark).slice(0, 8);
    const calls = [], first = Math.max(row.begin, firstAfter(row, time(px - 2)) - 1);
    for (let call = first; call < row.end && x(data.enter[call]) <= px + 1; call++) {
      if (Math.max(x(data.leave[call]), x(data.enter[call]) + 1.2) >= px - 1) calls.push(call);
    }
    if (calls.length) return calls.length > 2 ? ofMany(calls) : calls.flatMap((call) => ofCall(call, row));
    if (near.length) return near.slice(0, 3).flatMap(([message]) => ["Message", ...ofMessage(message)]);
    const place = spots.find((spot) => Math.abs(spot.stops[number] - px) < 4);
    if (place) return [place.many > 1 ? `${place.many} legal places, too close to be drawn apart` : "Legal place"];
    return row.closed.some(([begin, end]) => begin <= time(px) && time(px) <= end) ? ["No legal place here"] : null;
  }

  function apart([x0, y0, x1, y1], px, py) {  // from a point to an arrow; of a bow to its top
    if (y0 === y1) return Math.hypot(px - (x0 + x1) / 2, py - y0 + 0.45 * data.tall);
    const share = clamp(((px - x0) * (x1 - x0) + (py - y0) * (y1 - y0)) / ((x1 - x0) ** 2 + (y1 - y0) ** 2), 0, 1);
    return Math.hypot(px - x0 - share * (x1 - x0), py - y0 - share * (y1 - y0));
  }

  const ofMark = ([, at, site, hide, legal, step]) => [`${hide ? "hide" : "mark"}, ${legal ? "legal" : "not legal"}`,
    `${where(site)}${step === null ? "" : `, step ${step}`}, at ${moment(at)}`];

  function ofCall(call, row) {
    const ends = [...(bySent.get(call) ?? []), ...(byReceived.get(call) ?? [])];
    const lasts = data.lasts[call] < 0 ? "has not returned" : `lasts ${lasting(data.lasts[call])}`;
    const more = ends.length > 3 ? [`and ${times(ends.length - 3, "more message")}`] : [];
    const when = `${row.label}, at ${moment(data.enter[call])}, ${lasts}`;
    const said = ends.slice(0, 3).flatMap(ofMessage);
    return [data.functions[data.function[call]], where(data.site[call]), when, ...said, ...more];
  }

  function ofMany(calls) {
    const many = new Map();
    for (const call of calls) {
      const key = `${data.functions[data.function[call]]} at ${data.sites[data.site[call]][0]}`;
      many.set(key, (many.get(key) ?? 0) + 1);
    }
    const lines = [...many].sort((a, b) => b[1] - a[1]).map(([key, number]) => `${number} × ${key}`);
    const more = lines.length > 6 ? ["…"] : [];
    return [`${calls.length} calls, too close to be drawn apart`, ...lines.slice(0, 6), ...more];
  }

  function tell(lines, px, py) {
    tip.hidden = !lines;
    if (!lines) return;
    tip.replaceChildren(...lines.map((line, number) => element(number ? "span" : "b", {}, line)));
    tip.style.left = `${clamp(px + 14, 4, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${py + 18 + tip.offsetHeight > innerHeight ? Math.max(4, py - tip.offsetHeight - 10) : py + 18}px`;
  }

  // Moving.

  function look(begin, end) {
    const wide = clamp(end - begin, Math.min(1000, data.end), data.end);
    const from = clamp((begin + end - wide) / 2, 0, data.end - wide);
    view = [from, from + wide];
    tell(null);
    later();
  }

  const zoom = (factor, at = (view[0] + view[1]) / 2) => look(...view.map((end) => at + (end - at) * factor));
  const pan = (share) => look(...view.map((at) => at + share * (view[1] - view[0])));
  const whole = () => look(0, data.end), trouble = () => look(...data.view);
  const point = (event) => [event.clientX, event.clientY].map((at, axis) =>
    (at - svg.getBoundingClientRect()[axis ? "top" : "left"]) * width / svg.getBoundingClientRect().width);

  function step(by) {  // to the next call of the row that has the focus, for those without a mouse
    const row = rows[focused];
    if (!row || row.begin === row.end) return;
    const elsewhere = current < row.begin || current >= row.end;
    current = clamp(elsewhere ? firstAfter(row, view[0]) : current + by, row.begin, row.end - 1);
    const at = data.enter[current], { left, top, width: wide } = svg.getBoundingClientRect();
    if (at < view[0] || at > view[1]) look(at - (view[1] - view[0]) / 2, at + (view[1] - view[0]) / 2);
    said.value = ofCall(current, row).join(" · ");
    tell(ofCall(current, row), left + x(at) * wide / width, top + middle(focused) * wide / width);
  }

  function pick(number) {
    picked = picked === number ? -1 : number;
    document.querySelectorAll("tr[data-line]").forEach((line, each) => {
      line.classList.toggle("picked", each === picked);
      line.querySelector("button").setAttribute("aria-pressed", each === picked);
    });
    const line = data.lines[picked];
    if (line?.times.length && !line.times.some((stops) => stops.some((at) => at >= view[0] && at <= view[1]))) whole();
    const every = line?.every > 1 ? `; each ${line.every}th is drawn` : "";
    said.value = line ? `${line.where}: ${line.seen} of ${times(line.visits, "visit")} on this page${every}` : "";
    later();
  }

  function seek(event) {
    const { left, width: wide } = strip.getBoundingClientRect(), half = (view[1] - view[0]) / 2;
    const at = (event.clientX - left) / wide * data.span - data.begin, outside = at < 0 || at > data.end;
    const words = `${moment(at)} is not on this page: safepoint places --from … --to … makes one of another time`;
    said.value = outside ? words : "";
    if (!outside) look(at - half, at + half);
  }

  const keys = { "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), "0": whole, t: trouble,
    ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), ",": () => step(-1), ".": () => step(1) };

  function listen() {
    let held = null;
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / width);
      else zoom(1.0018 ** clamp(event.deltaY, -400, 400), time(clamp(point(event)[0], data.left, right())));
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => {
      held = [point(event)[0], [...view]];
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      const [px, py] = point(event);
      svg.classList.toggle("moving", Boolean(held));
      if (!held) { tell(under(px, py), event.clientX, event.clientY); return; }
      const by = (held[0] - px) * (held[1][1] - held[1][0]) / (right() - data.left);
      look(held[1][0] + by, held[1][1] + by);
    });
    for (const name of ["pointerup", "pointercancel"]) {
      svg.addEventListener(name, () => { held = null; svg.classList.remove("moving"); });
    }
    svg.addEventListener("pointerleave", () => tell(null));
    strip.addEventListener("pointerdown", (event) => { strip.setPointerCapture(event.pointerId); seek(event); });
    strip.addEventListener("pointermove", (event) => { if (event.buttons) seek(event); });
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    document.querySelectorAll("tr[data-line]").forEach((line, number) => {
      line.addEventListener("click", () => pick(number));
    });
    new ResizeObserver(later).observe(svg.parentNode);
  }

  function build() {
    svg.querySelectorAll("g.row").forEach((group, row) => {
      const bars = element("g", { class: "bars" });
      group.querySelectorAll(":scope > path:not(.closed), :scope > .letter").forEach((old) => old.remove());
      group.append(bars);
      group.querySelectorAll("title").forEach((old) => old.remove());  // else its words would come up beside the tip
      group.addEventListener("focus", () => { focused = row; });
      Object.assign(rows[row], { group, closed: data.closed.filter(([of]) => of === row).map(([, ...span]) => span) });
    });
    const buttons = [
      ["+", "zoom in (+)", () => zoom(0.5)], ["−", "zoom out (-)", () => zoom(2)],
      ["◀", "earlier (←)", () => pan(-0.4)], ["▶", "later (→)", () => pan(0.4)],
      ["all", "all of this page (0)", whole], ["back", "where it began (t)", trouble],
    ];
    const bar = element("div", { class: "bar" }, ...buttons.map(([words, title, action]) => {
      const button = element("button", { type: "button", title, "aria-label": title }, words);
      button.addEventListener("click", action);
      return button;
    }), said);
    strip.after(bar);
    document.body.append(tip);
    document.body.classList.add("live");
  }

  const tip = element("div", { class: "tip", role: "tooltip", hidden: "" });
  const help = "wheel zooms, drag moves; keys: + − ← → 0, and , . from call to call of a row";
  const said = element("output", {}, help);
  unpack();
  build();
  listen();
  draw();
})();
