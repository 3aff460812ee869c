#include "comm/rendezvous/store_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <stdexcept>
#include <utility>

#include "comm/rendezvous/tcp_store.h"
#include "zero/base/thread.h"

namespace zero::comm {
namespace {

using store::Query;

constexpr int wake_up_ms = 50;
constexpr std::size_t most_clients = 4096;

// A command that has not arrived whole.
struct Incomplete {};

template <class T>
T take(std::string_view& bytes) {
  if (bytes.size() < sizeof(T)) throw Incomplete();
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

std::string take_text(std::string_view& bytes) {
  const auto size = take<std::uint64_t>(bytes);
  if (size > store::longest_text) throw std::length_error("a text of the store");
  if (bytes.size() < size) throw Incomplete();
  const std::string text(bytes.substr(0, size));
  bytes.remove_prefix(size);
  return text;
}

}  // namespace

StoreServer::StoreServer(Descriptor listener) : listener_(std::move(listener)) {
  thread_ = start_thread_without_signals("the store of the ranks", [this] { serve(); });
}

StoreServer::~StoreServer() {
  ends_ = true;
  thread_.join();
}

void StoreServer::serve() {
  while (!ends_) {
    std::vector<pollfd> ready{{listener_.get(), POLLIN, 0}};
    for (const Client& client : clients_) ready.push_back({client.socket.get(), POLLIN, 0});
    if (poll(ready.data(), ready.size(), wake_up_ms) <= 0) continue;
    for (std::size_t c = clients_.size(); c-- > 0;)
      if (ready[c + 1].revents != 0 && !read_from(clients_[c]))
        clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(c));
    if (ready[0].revents != 0) accept_client();
  }
}

void StoreServer::accept_client() {
  Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket && clients_.size() < most_clients) clients_.push_back({std::move(socket), {}});
}

bool StoreServer::read_from(Client& client) {
  char bytes[4096];
  const ssize_t count = recv(client.socket.get(), bytes, sizeof bytes, 0);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  client.unread.append(bytes, static_cast<std::size_t>(count));
  return count > 0 && answer_all(client);
}

bool StoreServer::answer_all(Client& client) {
  std::string_view unread = client.unread;
  std::string answers;
  bool whole = true;
  try {
    while (whole && !unread.empty()) answers += answer(unread, whole);
  } catch (const std::exception&) {
    return false;
  }
  client.unread.erase(0, client.unread.size() - unread.size());
  // A client reads all answers before the next command, so that answers fit into the socket's
  // buffer.
  return answers.empty() || send(client.socket.get(), answers.data(), answers.size(),
                                 MSG_NOSIGNAL) == static_cast<ssize_t>(answers.size());
}

std::string StoreServer::answer(std::string_view& unread, bool& whole) {
  std::string_view rest = unread;
  std::string bytes;
  try {
    switch (const auto query = take<Query>(rest)) {
      case Query::validate:
        if (take<std::uint32_t>(rest) != store::magic) throw std::invalid_argument("no store");
        break;
      case Query::ping:
        store::put(bytes, take<std::uint32_t>(rest));
        break;
      case Query::set: {
        std::string key = take_text(rest);
        values_[std::move(key)] = take_text(rest);
        break;
      }
      case Query::get: {
        const auto found = values_.find(take_text(rest));
        store::put_text(bytes, found == values_.end() ? "" : found->second);
        break;
      }
      case Query::add: {
        std::string& value = values_[take_text(rest)];
        const std::int64_t sum = std::atoll(value.c_str()) + take<std::int64_t>(rest);
        store::put(bytes, sum);
        value = std::to_string(sum);
        break;
      }
      case Query::check: {
        bool all = true;
        for (auto keys = take<std::uint64_t>(rest); keys > 0; --keys)
          all = values_.contains(take_text(rest)) && all;
        store::put(bytes, static_cast<std::uint8_t>(all ? 0 : 1));
        break;
      }
      default:
        throw std::invalid_argument("command " + std::to_string(static_cast<int>(query)));
    }
  } catch (const Incomplete&) {
    whole = false;
    return {};
  }
  unread = rest;
  return bytes;
}

}  // namespace zero::comm
