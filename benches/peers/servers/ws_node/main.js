// The peer `ws` on Node, in a cluster of two processes: sends each WebSocket message back. main.js ADDRESS [deflate]
'use strict';

const cluster = require('node:cluster');
const http = require('node:http');
const { WebSocketServer } = require('ws');

const { WORKERS, address } = require('./common.js');

if (cluster.isPrimary) {
  for (let worker = 0; worker < WORKERS; worker++) cluster.fork();
} else {
  // Every message is compressed, as the others do it; by default short ones are not.
  const perMessageDeflate = process.argv[3] === 'deflate' ? { threshold: 0 } : false;
  const server = http.createServer();
  const sockets = new WebSocketServer({ server, perMessageDeflate });
  sockets.on('connection', (socket) => {
    socket.on('error', () => {});
    socket.on('message', (message, isBinary) => socket.send(message, { binary: isBinary }));
  });
  const { host, port } = address();
  server.listen({ host, port, backlog: 4096 });
}
