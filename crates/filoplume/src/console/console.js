// The page of the console. It reads the feed, computes rates from two snapshots, and shows them.
//
// Everything from the feed becomes text (`textContent`), never markup.

'use strict';

(() => {
  const { bytes, count, duration, known, ms, perSecond, UNKNOWN } = numbers;
  const feedUrl = new URL('events', document.currentScript.src);
  const SILENCE_MS = 5000; // The feed has an event per second: after this time it is lost.
  const RETRY_MS = 2000;
  const POINTS = 120; // Two minutes of requests per second.
  const MOVED_S = 60; // How long a route is marked that runs elsewhere.
  const SHORTEST_S = 0.2; // Rates over a shorter time are mostly noise.
  const WINDOW_S = 5; // Times are counted when a call ends, so a second shows too little of them.
  const USUAL = 'not seen to wait'; // Why most routes run where they do, which is left out.

  const byId = (id) => document.getElementById(id);
  const set = (node, text) => {
    if (node.textContent !== text) node.textContent = text;
  };
  const say = (id, text) => set(byId(id), text);
  const make = (name, className, text) => {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };

  // Lists whose rows keep their nodes, so that nothing flickers and a selection stays.

  const kept = new WeakMap();
  const keep = (list, items, keyOf, create, fill) => {
    const old = kept.get(list) || new Map();
    const rows = new Map();
    items.forEach((item, index) => {
      let key = keyOf(item, index);
      while (rows.has(key)) key += '\n';
      const row = old.get(key) || create();
      fill(row, item);
      rows.set(key, row);
      if (list.children[index] !== row) list.insertBefore(row, list.children[index] || null);
    });
    while (list.children.length > items.length) list.lastChild.remove();
    kept.set(list, rows);
    const empty = byId(`${list.closest('[id]').id}-empty`);
    if (empty) empty.hidden = items.length > 0;
    const table = list.closest('table');
    if (table) table.hidden = items.length === 0 && !table.dataset.shown;
  };

  const row = (columns) => () => {
    const tr = make('tr');
    tr.setAttribute('role', 'row');
    for (const [label, className] of columns) {
      const td = make('td', className);
      td.setAttribute('role', 'cell');
      td.dataset.label = label;
      tr.append(td);
    }
    return tr;
  };

  const number = (cell, value, text) => {
    set(cell, text);
    const shown = known(value) && Number(value) === 0 ? '0' : '';
    if (cell.dataset.value !== shown) cell.dataset.value = shown;
  };

  const body = (id) => byId(id).querySelector('tbody');

  // What was seen before.

  let last = null; // The last snapshot.
  let before = null; // The one from which rates are computed.
  let recent = []; // Those of the window before the last, the oldest first.
  let rates = []; // Requests per second, the newest last.

  const routeKey = (route) => `${route.methods} ${route.pattern}`;

  const take = (snapshot) => {
    if (last && snapshot.uptime_s < last.uptime_s) {
      // Another process.
      last = null;
      rates = [];
      recent = [];
    }
    if (last && snapshot.uptime_s - last.uptime_s >= SHORTEST_S) {
      before = last;
      recent.push(last);
      // One may be older, so that the window is full.
      while (recent.length > 1 && snapshot.uptime_s - recent[1].uptime_s >= WINDOW_S) {
        recent.shift();
      }
    }
    if (!last) before = null;
    last = snapshot;
    const rate = change(snapshot, before, (one) => one.requests.total);
    if (rate !== null) rates = [...rates, rate].slice(-POINTS);
  };

  // The change of a counter per second.
  const change = (now, then, read) => {
    const seconds = then ? now.uptime_s - then.uptime_s : 0;
    if (!(seconds > 0)) return null;
    const [new_, old] = [read(now), read(then)];
    return known(new_) && known(old) ? Math.max(0, (new_ - old) / seconds) : null;
  };

  // The parts of the page.

  const showFigures = (now) => {
    say('phase', now.phase || UNKNOWN);
    byId('phase').dataset.phase = now.phase || '';
    say('uptime', known(now.uptime_s) ? `for ${duration(now.uptime_s)}` : '');
    say('rate', perSecond(rates.at(-1)));
    say('total', `${count(now.requests.total)} since the start`);
    say('active', count(now.requests.active));
    say('waiting', count(now.requests.waiting));
    byId('waiting').classList.toggle('raised', now.requests.waiting > 0);
    say('connections', count(now.connections.open));
    say('idle', known(now.connections.idle) ? `${count(now.connections.idle)} idle` : '');
    say('threads', count(now.threads.total));
    say('busy', known(now.threads.busy) ? `${count(now.threads.busy)} busy` : '');
    say('memory', bytes(now.memory.used));
    const { process } = now.memory;
    say('process', known(process) ? `process ${bytes(process)}` : '');
    showSpark();
  };

  const showSpark = () => {
    const max = Math.max(1, ...rates);
    const points = rates.map((rate, index) => {
      const x = POINTS - rates.length + index;
      return `${x},${(27 - (rate / max) * 25).toFixed(1)}`;
    });
    byId('line').setAttribute('points', points.join(' '));
    const from = POINTS - rates.length;
    const area = points.length > 1 ? `M${from},28 L${points.join(' L')} L${POINTS - 1},28 Z` : '';
    byId('area').setAttribute('d', area);
  };

  const showLimits = (now) => {
    const create = () => {
      const li = make('li');
      const bar = make('div', 'bar');
      bar.setAttribute('role', 'meter');
      bar.setAttribute('aria-valuemin', '0');
      bar.append(make('i'));
      li.append(make('span'), make('span', 'used'), bar);
      return li;
    };
    keep(byId('limits'), now.limits, (limit) => limit.name, create, (li, limit) => {
      const [name, used, bar] = li.children;
      const write = limit.name === 'memory' ? bytes : count;
      const share = limit.max > 0 ? Math.min(1, limit.used / limit.max) : 0;
      set(name, limit.name);
      set(used, `${write(limit.used)} of ${write(limit.max)}`);
      bar.setAttribute('aria-label', limit.name);
      bar.setAttribute('aria-valuemax', limit.max);
      bar.setAttribute('aria-valuenow', Math.min(limit.used, limit.max));
      bar.setAttribute('aria-valuetext', used.textContent);
      bar.dataset.level = share >= 1 ? 'full' : share >= 0.8 ? 'high' : 'low';
      bar.firstChild.style.width = `${(share * 100).toFixed(1)}%`;
    });
  };

  const loopRow = row([['led by', 'text path'], ['connections'], ['idle'], ['handed over']]);
  const showLoops = (now) => {
    keep(body('loops'), now.loops, (_, index) => String(index), loopRow, (tr, loop) => {
      const [thread, connections, idle, handedOver] = tr.children;
      set(thread, loop.thread || UNKNOWN);
      number(connections, loop.connections, count(loop.connections));
      number(idle, loop.idle, count(loop.idle));
      number(handedOver, loop.handed_over, count(loop.handed_over));
    });
  };

  const callRow = row([
    ['route', 'text path'],
    ['running', 'named'],
    ['on', 'text on'],
    ['thread', 'text path named'],
    ['waits for', 'text'],
    ['request', 'text id named'],
  ]);
  const showCalls = (now) => {
    say('calls-note', now.calls.length > 0 ? 'the longest first' : '');
    const keyOf = (call) => `${call.thread_id} ${call.route} ${call.request_id}`;
    keep(body('calls'), now.calls, keyOf, callRow, (tr, call) => {
      const [route, running, on, thread, wait, request] = tr.children;
      set(route, call.route || UNKNOWN);
      set(running, ms(call.running_ms));
      place(on, call.runs);
      set(thread, call.thread || (call.thread_id ? String(call.thread_id) : ''));
      const purpose = call.detached ? ' (it holds its thread on purpose)' : '';
      set(wait, `${call.waits_for || ''}${purpose}`);
      set(request, call.request_id || '');
    });
  };
  const checkRow = row([['check', 'text path'], ['state', 'text'], ['for'], ['why', 'text']]);
  const showChecks = (now) => {
    keep(body('checks'), now.checks, (check) => check.name, checkRow, (tr, check) => {
      const state_ = check.required ? check.state : `${check.state} (optional)`;
      const texts = [check.name, state_, duration(check.since_s), check.message || ''];
      texts.forEach((text, index) => set(tr.children[index], text));
      tr.children[1].classList.toggle('bad', ['failed', 'late'].includes(check.state));
    });
  };
  const place = (cell, runs) => {
    if (!cell.firstChild) cell.append(make('span', 'place'));
    const badge = cell.firstChild;
    badge.hidden = !runs;
    set(badge, runs || '');
    if (badge.dataset.place !== runs) badge.dataset.place = runs || '';
  };

  const idleRow = row([['wait for', 'text'], ['count']]);
  const showIdle = (now) => {
    keep(body('idles'), now.idle || [], (one) => one.waits_for, idleRow, (tr, one) => {
      set(tr.children[0], one.waits_for);
      set(tr.children[1], count(one.count));
    });
  };

  const reasonRow = row([['reason', 'text'], ['count'], ['per second']]);
  const showReasons = (now, id, listOf) => {
    const keyOf = (item) => item.reason;
    keep(body(id), listOf(now), keyOf, reasonRow, (tr, item) => {
      const [reason, total, each] = tr.children;
      const read = (snapshot) =>
        (listOf(snapshot).find((one) => one.reason === item.reason) || { count: 0 }).count;
      const rate = change(now, before, read);
      set(reason, item.reason);
      set(total, count(item.count));
      number(each, rate, perSecond(rate));
      each.classList.toggle('bad', rate > 0);
    });
  };

  const storyRow = () => {
    const li = make('li');
    li.append(make('time'), make('span', 'kind'), make('span', 'story'));
    li.lastChild.append(make('span'), make('span', 'id'));
    return li;
  };
  const showStories = (now) => {
    const keyOf = (story) => `${story.at_ms} ${story.text} ${story.request_id}`;
    keep(byId('stories'), now.stories, keyOf, storyRow, (li, story) => {
      const [time, kind, text] = li.children;
      const at = new Date(story.at_ms);
      set(time, at.toLocaleTimeString('en-GB'));
      time.dateTime = at.toISOString();
      set(kind, story.kind);
      kind.dataset.kind = story.kind;
      set(text.firstChild, story.text);
      set(text.lastChild, story.request_id ? `  ${story.request_id}` : '');
    });
  };

  // The table of routes.

  const routeRow = row([
    ['route', 'text path'],
    ['req/s'],
    ['requests'],
    ['in flight'],
    ['errors'],
    ['median'],
    ['p99'],
    ['computing/s'],
    ['waiting/s'],
    ['runs on', 'text on'],
    ['why', 'text'],
  ]);

  const sort = { by: 'requests', isDescending: true };
  const VALUES = {
    route: (route) => `${route.pattern} ${route.methods}`,
    rate: (route) => route.rate,
    requests: (route) => route.requests,
    active: (route) => route.active,
    errors: (route) => route.errors,
    median: (route) => route.median_ms,
    p99: (route) => route.p99_ms,
    computing: (route) => route.computing,
    blocked: (route) => route.blocked,
    runs: (route) => route.runs,
  };

  const compare = (a, b) => {
    const read = VALUES[sort.by];
    const [x, y] = [read(a), read(b)];
    // Unknown values are last in either order.
    if (!known(x) || !known(y)) return Number(!known(x)) - Number(!known(y));
    const order = typeof x === 'string' ? x.localeCompare(y) : x - y;
    return sort.isDescending ? -order : order;
  };

  const routesOf = (now) => {
    const inSnapshot = (then) =>
      new Map(then ? then.routes.map((route) => [routeKey(route), route]) : []);
    const [then, longAgo] = [before, recent[0]];
    const [old, oldest] = [inSnapshot(then), inSnapshot(longAgo)];
    // A route that was not there had no calls, or was not among the busiest.
    const each = (route, earlier, snapshot, member) => {
      const found = earlier.get(routeKey(route));
      return found ? change(now, snapshot, (one) => (one === now ? route : found)[member]) : null;
    };
    return now.routes.map((route) => {
      const time = (member) => {
        const seconds = each(route, oldest, longAgo, member);
        return known(seconds) ? seconds * 1e3 : null;
      };
      return {
        ...route,
        rate: each(route, old, then, 'requests'),
        computing: time('computing_s'),
        blocked: time('waiting_s'),
        hasMoved: known(route.since_s) && route.since_s < MOVED_S,
      };
    });
  };

  const fillRoute = (tr, route) => {
    const [path, rate, requests, active, errors, median, p99, ...others] = tr.children;
    const [computing, blocked, on, why] = others;
    if (!path.firstChild) path.append(make('span', 'method'), make('span'));
    set(path.firstChild, route.methods ? `${route.methods} ` : '');
    set(path.lastChild, route.pattern);
    number(rate, route.rate, perSecond(route.rate));
    number(requests, route.requests, count(route.requests));
    number(active, route.active, count(route.active));
    number(errors, route.errors, count(route.errors));
    errors.classList.toggle('bad', route.errors > 0);
    number(median, route.median_ms, ms(route.median_ms));
    number(p99, route.p99_ms, ms(route.p99_ms));
    number(computing, route.computing, ms(route.computing));
    number(blocked, route.blocked, ms(route.blocked));
    place(on, route.runs);
    if (!why.firstChild) why.append(make('span', 'flag'), make('span', 'note'));
    set(why.firstChild, route.hasMoved ? `moved ${duration(route.since_s)} ago ` : '');
    set(why.lastChild, route.why && route.why !== USUAL ? route.why : '');
    why.classList.toggle('blank', why.textContent === '');
    tr.classList.toggle('moved', route.hasMoved);
  };

  const showRoutes = (now) => {
    const wanted = byId('filter').value.trim().toLowerCase();
    const all = routesOf(now);
    const shown = all.filter((route) => routeKey(route).toLowerCase().includes(wanted));
    shown.sort(compare);
    byId('routes').dataset.shown = all.length > 0 ? 'yes' : '';
    keep(body('routes'), shown, routeKey, routeRow, fillRoute);
    say('routes-empty', all.length > 0 ? 'No route matches the filter.' : 'No request yet.');
    const hidden = now.routes_known > all.length ? ` of ${count(now.routes_known)}` : '';
    const note = `${count(shown.length)}${hidden}, times since the start`;
    say('routes-note', all.length > 0 ? note : '');
  };

  const show = () => {
    if (!last) return;
    showFigures(last);
    showRoutes(last);
    showCalls(last);
    showLimits(last);
    showChecks(last);
    showLoops(last);
    showIdle(last);
    showReasons(last, 'ended', (snapshot) => snapshot.ended || []);
    showReasons(last, 'refusals', (snapshot) => snapshot.refusals);
    showStories(last);
  };

  const sortBy = (by) => {
    const isText = by === 'route' || by === 'runs';
    sort.isDescending = sort.by === by ? !sort.isDescending : !isText;
    sort.by = by;
    for (const th of byId('routes').querySelectorAll('th[data-sort]')) {
      if (th.dataset.sort !== by) th.removeAttribute('aria-sort');
      else th.setAttribute('aria-sort', sort.isDescending ? 'descending' : 'ascending');
    }
    if (last) showRoutes(last);
  };

  // The feed. It is closed while nobody looks, so that the server makes no snapshots.

  let feed = null;
  let isPaused = false;
  let silence = 0;
  let retry = 0;

  const state = (name, text) => {
    if (document.body.dataset.state !== name) document.body.dataset.state = name;
    say('state', text);
  };

  const close = () => {
    clearTimeout(silence);
    clearTimeout(retry);
    if (feed) feed.close();
    feed = null;
  };

  const open = () => {
    close();
    if (isPaused || document.hidden) return;
    feed = new EventSource(feedUrl);
    feed.addEventListener('snapshot', (event) => {
      take(JSON.parse(event.data));
      listen();
      state('live', 'live');
      show();
    });
    feed.addEventListener('error', lose);
    listen();
  };

  const listen = () => {
    clearTimeout(silence);
    silence = setTimeout(lose, SILENCE_MS);
  };

  const lose = () => {
    close();
    state('lost', 'connection lost, trying again');
    retry = setTimeout(open, RETRY_MS);
    explain();
  };

  // An `EventSource` does not tell why it was refused.
  const explain = async () => {
    try {
      const { status } = await fetch(feedUrl, { method: 'HEAD', cache: 'no-store' });
      if (feed || isPaused) return;
      if (status === 503) state('lost', 'there are too many viewers, trying again');
      if (status === 401 || status === 403) {
        state('lost', 'not allowed any more: load the page again');
      }
    } catch {
      // The server is away, which the page says already.
    }
  };

  const pause = () => {
    isPaused = !isPaused;
    byId('pause').setAttribute('aria-pressed', String(isPaused));
    if (isPaused) {
      close();
      state('paused', 'paused');
    } else {
      state('connecting', 'connecting');
      open();
    }
  };

  byId('pause').addEventListener('click', pause);
  document.addEventListener('keydown', (event) => {
    const isTyping = event.target.closest('input, textarea, select');
    const isShortcut = event.ctrlKey || event.metaKey || event.altKey || event.repeat;
    if (event.key === 'p' && !isTyping && !isShortcut) pause();
  });
  document.addEventListener('visibilitychange', open);
  byId('filter').addEventListener('input', () => last && showRoutes(last));
  for (const th of byId('routes').querySelectorAll('th[data-sort]')) {
    th.querySelector('button').addEventListener('click', () => sortBy(th.dataset.sort));
  }
  say('host', location.host);
  document.title = `Console · ${location.host}`;
  open();
})();
