#include "comm/rendezvous/tcp_store.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "comm/call.h"
#include "comm/rendezvous/store_server.h"
#include "zero/base/descriptor.h"
#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using store::Query;

// The pause between two tries to connect, and between two looks at a key.
constexpr milliseconds pause{5};

struct Variables {
  int rank = 0, size = 0;
  std::string host, port;

  std::string place() const { return "MASTER_ADDR " + host + ", MASTER_PORT " + port; }
};

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

int number_of(const char* name, int least, int most) {
  const std::string text = variable(name);
  char* end = nullptr;
  const long number = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || number < least || number > most)
    throw ConfigError(
        std::string(name) + " is " + (text.empty() ? "not set" : "\"" + text + "\"") +
        "; a process that is one of several needs RANK (0 to WORLD_SIZE - 1), WORLD_SIZE, "
        "MASTER_ADDR and MASTER_PORT (1 to 65535): start the ranks with torchrun or mpirun, or set "
        "all four for each");
  return static_cast<int>(number);
}

Variables read_variables() {
  Variables found;
  found.size = number_of("WORLD_SIZE", 1, 1 << 20);
  found.rank = number_of("RANK", 0, found.size - 1);
  found.port = std::to_string(number_of("MASTER_PORT", 1, 65535));
  found.host = variable("MASTER_ADDR");
  if (found.host.empty()) number_of("MASTER_ADDR", 0, 0);
  return found;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses addresses_of(const Variables& at) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(at.host.c_str(), at.port.c_str(), &hints, &found);
  if (error != 0)
    throw ConfigError("MASTER_ADDR " + at.host +
                      " is no address of a host: " + gai_strerror(error));
  return {found, &freeaddrinfo};
}

// Binds to this address alone: the store must not be open to further networks.
Descriptor listen_at(const Variables& at) {
  int error = 0;
  const Addresses addresses = addresses_of(at);
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    Descriptor socket(::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(socket.get(), each->ai_addr, each->ai_addrlen) == 0 &&
        listen(socket.get(), SOMAXCONN) == 0)
      return socket;
    error = errno;
  }
  throw ConfigError(at.place() + " cannot be opened on rank 0's host, " + host_name() + ": " +
                    std::strerror(error) +
                    "; MASTER_ADDR must be an address of that host, and MASTER_PORT a free port");
}

class TcpStore final : public Rendezvous {
 public:
  TcpStore(Variables at, std::string prefix, milliseconds limit)
      : at_(std::move(at)), prefix_(std::move(prefix)), limit_(limit) {
    if (at_.rank == 0 && variable("TORCHELASTIC_USE_AGENT_STORE") != "True")
      server_ = std::make_unique<StoreServer>(listen_at(at_));
    connect_within(Clock::now() + limit);
    introduce();
  }

  int rank() const override { return at_.rank; }
  int size() const override { return at_.size; }
  std::string describe() const override { return "the store at " + at_.place(); }
  void set(const std::string& key, std::string_view value) override {
    std::string bytes = command(Query::set, key);
    store::put_text(bytes, value);
    send_all(bytes);
  }
  std::string get(const std::string& key, milliseconds limit) override;

 private:
  void connect_within(Clock::time_point deadline);
  void introduce();
  std::string command(Query query, const std::string& key) const {
    std::string bytes(1, static_cast<char>(query));
    if (query == Query::check) store::put(bytes, std::uint64_t{1});
    store::put_text(bytes, prefix_ + key);
    return bytes;
  }
  void send_all(std::string_view bytes);
  void receive_all(void* data, std::size_t bytes);
  template <class T>
  T receive() {
    T value;
    receive_all(&value, sizeof value);
    return value;
  }
  [[noreturn]] void throw_broken(const std::string& reason) const;

  Variables at_;
  std::string prefix_;
  milliseconds limit_;  // of an answer
  std::unique_ptr<StoreServer> server_;
  Descriptor socket_;
};

void TcpStore::throw_broken(const std::string& reason) const {
  throw TopologyError(describe() + " does not answer rank " + std::to_string(at_.rank) + ": " +
                      reason +
                      "; the process that hosts it, rank 0 or torchrun's agent, may have ended, or "
                      "another program may have the port");
}

void TcpStore::connect_within(Clock::time_point deadline) {
  for (std::string reason = "no answer";; std::this_thread::sleep_for(pause)) {
    const Addresses addresses = addresses_of(at_);
    for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
      Descriptor socket(::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, 0));
      // Bounds connect() too.
      const timeval limit{std::max<std::int64_t>(1, limit_.count() / 1000), 0};
      setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
      if (::connect(socket.get(), each->ai_addr, each->ai_addrlen) == 0) {
        const int on = 1;
        setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        socket_ = std::move(socket);
        return;
      }
      reason = std::strerror(errno);
    }
    if (Clock::now() >= deadline)
      throw StalledError("rank " + std::to_string(at_.rank) + ", on host " + host_name() +
                         ", did not reach " + at_.place() + " within " + duration_text(limit_) +
                         ": " + reason +
                         "; rank 0 may not have started, or the variables may be those of an "
                         "earlier job");
  }
}

void TcpStore::introduce() {
  std::string bytes(1, static_cast<char>(Query::validate));
  store::put(bytes, store::magic);
  store::put(bytes, Query::ping);
  const auto number = static_cast<std::uint32_t>(at_.rank + 1);
  store::put(bytes, number);
  send_all(bytes);
  if (receive<std::uint32_t>() != number) throw_broken("it is no store of torch's protocol");
  std::string arrival = command(Query::add, "arrived/" + std::to_string(at_.rank));
  store::put(arrival, std::int64_t{1});
  send_all(arrival);
  if (receive<std::int64_t>() > 1)
    throw TopologyError("a process has come to " + describe() + " as rank " +
                        std::to_string(at_.rank) +
                        " before this one: two jobs share this address and port, or a process was "
                        "started again alone; give each job a MASTER_PORT of its own, and start "
                        "all ranks of a job together");
}

std::string TcpStore::get(const std::string& key, milliseconds limit) {
  for (const auto deadline = Clock::now() + limit;; std::this_thread::sleep_for(pause)) {
    send_all(command(Query::check, key));
    if (receive<std::uint8_t>() == 0) break;
    if (Clock::now() >= deadline)
      throw StalledError("nobody has set " + key + " in " + describe() + " within " +
                         duration_text(limit));
  }
  send_all(command(Query::get, key));
  const auto size = receive<std::uint64_t>();
  if (size > store::longest_text) throw_broken("it sends a value of impossible length");
  std::string value(size, '\0');
  receive_all(value.data(), value.size());
  return value;
}

void TcpStore::send_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) throw_broken(std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

void TcpStore::receive_all(void* data, std::size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    pollfd ready{socket_.get(), POLLIN, 0};
    const int found =
        poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(limit_.count(), INT_MAX)));
    if (found < 0 && errno == EINTR) continue;
    if (found == 0) throw_broken("no answer within " + duration_text(limit_));
    const ssize_t count = recv(socket_.get(), at, bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw_broken(count == 0 ? "the connection was closed" : std::strerror(errno));
    at += count;
    bytes -= static_cast<std::size_t>(count);
  }
}

}  // namespace

void store::put_text(std::string& bytes, std::string_view text) {
  put(bytes, static_cast<std::uint64_t>(text.size()));
  bytes.append(text);
}

std::shared_ptr<Rendezvous> join_store(milliseconds limit) {
  // One per process, shared by all Runtimes, and never destroyed: no child of fork() may end the
  // store.
  static auto* const joined = new std::shared_ptr<Rendezvous>;
  // Each restart by torchrun's agent uses new keys.
  const std::string prefix = "zerocore-cpp/" + variable("TORCHELASTIC_RUN_ID") + "/" +
                             variable("TORCHELASTIC_RESTART_COUNT") + "/";
  if (!*joined) *joined = std::make_shared<TcpStore>(read_variables(), prefix, limit);
  return *joined;
}

}  // namespace zero::comm
