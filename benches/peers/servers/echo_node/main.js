// The Node echo peer: main.js ADDRESS. One process, and so one thread for all sockets; the number of threads that follows
// is not read.
'use strict';

const net = require('node:net');

const [host, port] = process.argv[2].split(':');

const server = net.createServer({ noDelay: true }, (socket) => {
  // A connection that breaks is over; nobody else is concerned.
  socket.on('error', () => socket.destroy());
  socket.pipe(socket);
});
server.listen({ host, port: Number(port), backlog: 4096 });
