// The Node peer: its own http module in a cluster of two processes. `/sleep` is marked with a timer; work has no mark.
'use strict';

const cluster = require('node:cluster');
const http = require('node:http');

const { HELLO, WORKERS, address, block, milliseconds, spin } = require('./common.js');

// Longer than any scenario keeps an idle connection; the default of 5 s would close them.
const KEEP_ALIVE_MS = 75_000;

function text(response, content) {
  response.writeHead(200, { 'Content-Type': 'text/plain', 'Content-Length': Buffer.byteLength(content) });
  response.end(content);
}

function answer(request, response) {
  const [path, query] = request.url.split('?');
  switch (path) {
    case '/plaintext':
      return text(response, HELLO);
    case '/json': {
      const content = JSON.stringify({ message: HELLO });
      response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': content.length });
      return response.end(content);
    }
    case '/sleep':
      return setTimeout(text, milliseconds(query), response, HELLO);
    case '/sleep_unmarked':
      block(milliseconds(query));
      return text(response, HELLO);
    case '/cpu':
      spin(milliseconds(query));
      return text(response, HELLO);
    case '/length': {
      let length = 0;
      request.on('data', (piece) => (length += piece.length));
      return request.on('end', () => text(response, String(length)));
    }
    default:
      response.writeHead(404, { 'Content-Length': 0 });
      return response.end();
  }
}

if (cluster.isPrimary) {
  for (let worker = 0; worker < WORKERS; worker++) cluster.fork();
} else {
  const server = http.createServer({ keepAliveTimeout: KEEP_ALIVE_MS }, answer);
  const { host, port } = address();
  server.listen({ host, port, backlog: 4096 });
}
