// The asio echo peer: asio ADDRESS. One thread, as in asio's own examples; the number of threads that follows is not read.
#include <array>
#include <asio.hpp>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

using asio::ip::tcp;

constexpr int BACKLOG = 4096;
constexpr std::size_t INPUT_BYTES = 16 * 1024;

class Session : public std::enable_shared_from_this<Session> {
public:
    explicit Session(tcp::socket socket) : socket_(std::move(socket)) {}

    void read() {
        socket_.async_read_some(asio::buffer(input_), [self = shared_from_this()](std::error_code error, std::size_t count) {
            if (!error) self->write(count);
        });
    }

private:
    void write(std::size_t count) {
        asio::async_write(socket_, asio::buffer(input_, count), [self = shared_from_this()](std::error_code error, std::size_t) {
            if (!error) self->read();
        });
    }

    tcp::socket socket_;
    std::array<char, INPUT_BYTES> input_;
};

static void accept(tcp::acceptor &acceptor) {
    acceptor.async_accept([&acceptor](std::error_code error, tcp::socket socket) {
        if (!error) {
            std::error_code ignored;
            socket.set_option(tcp::no_delay(true), ignored);
            std::make_shared<Session>(std::move(socket))->read();
        }
        accept(acceptor);
    });
}

int main(int count, char **words) {
    const std::string argument = count < 2 ? "" : words[1];
    const auto colon = argument.find(':');
    if (colon == std::string::npos) {
        std::cerr << "the first argument looks like 127.0.0.1:8080\n";
        return 1;
    }
    // A hint that no other thread exists, so that asio leaves out its locks.
    asio::io_context context(1);
    const auto port = static_cast<unsigned short>(std::atoi(argument.c_str() + colon + 1));
    const tcp::endpoint endpoint(asio::ip::make_address(argument.substr(0, colon)), port);
    tcp::acceptor acceptor(context);
    acceptor.open(endpoint.protocol());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen(BACKLOG);
    accept(acceptor);
    context.run();
}
