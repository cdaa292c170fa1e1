// The Express peer in a cluster of two processes. `/sleep` is marked with a timer; work has no mark.
'use strict';

const cluster = require('node:cluster');
const express = require('express');

const { HELLO, WORKERS, address, block, spin } = require('./common.js');

// Longer than any scenario keeps an idle connection; the default of 5 s would close them.
const KEEP_ALIVE_MS = 75_000;

function routes() {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.get('/plaintext', (request, response) => response.type('text/plain').send(HELLO));
  app.get('/json', (request, response) => response.json({ message: HELLO }));
  app.get('/sleep', (request, response) => {
    setTimeout(() => response.type('text/plain').send(HELLO), Number(request.query.ms ?? 10));
  });
  app.get('/sleep_unmarked', (request, response) => {
    block(Number(request.query.ms ?? 10));
    response.type('text/plain').send(HELLO);
  });
  app.get('/cpu', (request, response) => {
    spin(Number(request.query.ms ?? 10));
    response.type('text/plain').send(HELLO);
  });
  app.post('/length', express.raw({ type: () => true, limit: '1mb' }), (request, response) => {
    response.type('text/plain').send(String(request.body?.length ?? 0));
  });
  return app;
}

// The second argument: how many processes. One is a server as most are started, without a cluster.
const processes = Number(process.argv[3] ?? WORKERS);

if (cluster.isPrimary && processes > 1) {
  for (let worker = 0; worker < processes; worker++) cluster.fork();
} else {
  const { host, port } = address();
  const server = routes().listen(port, host, 4096);
  server.keepAliveTimeout = KEEP_ALIVE_MS;
}
