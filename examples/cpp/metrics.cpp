// Serves the allocator's metrics and the program's own to Prometheus, in one answer, through the
// program's own server: here one that answers one client after the other.
//
//   c++ metrics.cpp $(pkg-config --cflags --libs mallard) -o metrics
//   ./metrics 9701 & curl http://127.0.0.1:9701/metrics
#include <arpa/inet.h>
#include <mallard.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace {

// The allocator's metrics. The text ends with the line "# EOF", which must come last.
std::string allocator_metrics() {
    std::string text;
    malloc_stats_print(
        [](void *opaque, const char *piece) { *static_cast<std::string *>(opaque) += piece; },
        &text, "P");
    return text;
}

std::string response(std::string_view request, std::size_t answered) {
    if (request.substr(0, 13) != "GET /metrics ") {
        return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    }
    std::string body =
        "# TYPE server_requests counter\nserver_requests_total " + std::to_string(answered) + "\n";
    body += allocator_metrics();
    return "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " +
           std::to_string(body.size()) +
           "\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\r\n" +
           body;
}

// A request, up to its empty line.
std::string receive(int client) {
    std::string request;
    char piece[1024];
    while (request.size() < 4096 && request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t more = read(client, piece, sizeof piece);
        if (more <= 0)
            break;
        request.append(piece, static_cast<std::size_t>(more));
    }
    return request;
}

void send_all(int client, std::string_view text) {
    while (!text.empty()) {
        const ssize_t sent = write(client, text.data(), text.size());
        if (sent <= 0)
            return;
        text.remove_prefix(static_cast<std::size_t>(sent));
    }
}

} // namespace

int main(int argc, char **argv) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(argc > 1 ? static_cast<std::uint16_t>(std::atoi(argv[1])) : 0);
    socklen_t length = sizeof address;
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    auto *generic = reinterpret_cast<sockaddr *>(&address);
    if (bind(server, generic, length) != 0 || listen(server, 16) != 0 ||
        getsockname(server, generic, &length) != 0) {
        std::perror("127.0.0.1");
        return 1;
    }
    std::signal(SIGPIPE, SIG_IGN);
    std::cout << "http://127.0.0.1:" << ntohs(address.sin_port) << "/metrics" << std::endl;

    const std::vector<char> work(3 << 20, 'x'); // what the program is there for
    for (std::size_t answered = 0;; ++answered) {
        const int client = accept4(server, nullptr, nullptr, SOCK_CLOEXEC);
        if (client < 0)
            continue;
        // A client that says nothing is not waited for.
        const timeval patience{2, 0};
        setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        send_all(client, response(receive(client), answered));
        close(client);
    }
}
