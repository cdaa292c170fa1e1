/* The libuv echo peer: libuv ADDRESS. One thread, as libuv's loops are; the number of threads that follows is not read. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum { BACKLOG = 4096, INPUT_BYTES = 16 * 1024 };

/* One loop and one buffer: what is read is sent before anything else is read. */
static char input[INPUT_BYTES];

/* What the socket did not take at once. */
struct rest {
    uv_write_t request;
    char bytes[];
};

static void closed(uv_handle_t *handle) {
    free(handle);
}

static void hang_up(uv_stream_t *stream) {
    if (!uv_is_closing((uv_handle_t *)stream)) uv_close((uv_handle_t *)stream, closed);
}

static void allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
    (void)handle, (void)suggested;
    *buffer = uv_buf_init(input, sizeof input);
}

static void rest_sent(uv_write_t *request, int status) {
    if (status < 0) hang_up(request->handle);
    free(request);
}

static void received(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer) {
    (void)buffer;
    if (count == 0) return;
    if (count < 0) {
        hang_up(stream);
        return;
    }
    uv_buf_t answer = uv_buf_init(input, (unsigned)count);
    int sent = uv_try_write(stream, &answer, 1);
    if (sent == UV_EAGAIN) sent = 0;
    if (sent < 0) {
        hang_up(stream);
        return;
    }
    if (sent == count) return;
    size_t left = (size_t)(count - sent);
    struct rest *rest = malloc(sizeof *rest + left);
    if (!rest) abort();
    memcpy(rest->bytes, input + sent, left);
    answer = uv_buf_init(rest->bytes, (unsigned)left);
    if (uv_write(&rest->request, stream, &answer, 1, rest_sent) < 0) {
        free(rest);
        hang_up(stream);
    }
}

static void connected(uv_stream_t *listener, int status) {
    if (status < 0) return;
    uv_tcp_t *stream = malloc(sizeof *stream);
    if (!stream) abort();
    uv_tcp_init(listener->loop, stream);
    if (uv_accept(listener, (uv_stream_t *)stream) < 0) {
        hang_up((uv_stream_t *)stream);
        return;
    }
    uv_tcp_nodelay(stream, 1);
    uv_read_start((uv_stream_t *)stream, allocate, received);
}

static void check(int result, const char *what) {
    if (result >= 0) return;
    fprintf(stderr, "%s: %s\n", what, uv_strerror(result));
    exit(1);
}

int main(int count, char **words) {
    char *colon = count < 2 ? NULL : strchr(words[1], ':');
    if (!colon) {
        fprintf(stderr, "the first argument looks like 127.0.0.1:8080\n");
        return 1;
    }
    *colon = '\0';
    /* A peer that is gone is an error of its write, and not the end of the process. */
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in address;
    check(uv_ip4_addr(words[1], atoi(colon + 1), &address), "the address");
    uv_tcp_t listener;
    check(uv_tcp_init(uv_default_loop(), &listener), "a socket");
    check(uv_tcp_bind(&listener, (const struct sockaddr *)&address, 0), "bind");
    check(uv_listen((uv_stream_t *)&listener, BACKLOG, connected), "listen");
    return uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
