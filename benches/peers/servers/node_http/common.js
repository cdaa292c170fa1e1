// What both Node servers do in the same way.
'use strict';

const HELLO = 'Hello, World!';
const WORKERS = 2;

/** The first argument: where to listen. */
function address() {
  const [host, port] = process.argv[2].split(':');
  return { host, port: Number(port) };
}

/** The value of `ms=` in a query, or 10. */
function milliseconds(query) {
  const found = /(?:^|&)ms=(\d+)/.exec(query ?? '');
  return found ? Number(found[1]) : 10;
}

const cell = new Int32Array(new SharedArrayBuffer(4));

/** Holds the thread, as a synchronous driver does. */
function block(milliseconds) {
  Atomics.wait(cell, 0, 0, milliseconds);
}

/** Keeps a core busy until this much time has passed. */
function spin(milliseconds) {
  const end = performance.now() + milliseconds;
  let hash = 0;
  while (performance.now() < end) {
    for (let round = 0; round < 1000; round++) hash = (Math.imul(hash, 31) + round) | 0;
  }
  return hash;
}

module.exports = { HELLO, WORKERS, address, block, milliseconds, spin };
