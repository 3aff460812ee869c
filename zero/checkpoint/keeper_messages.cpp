#include "zero/checkpoint/keeper_messages.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "zero/base/error.h"
#include "zero/base/file_message.h"

namespace zero::checkpoint {
namespace {

constexpr char separator = '\n';

struct Address {
  explicit Address(const std::string& job) {
    const std::string name = "zero-keeper-" + job;
    address.sun_family = AF_UNIX;
    const std::size_t count = std::min(name.size(), sizeof address.sun_path - 1);
    name.copy(address.sun_path + 1, count);  // after a zero byte: an abstract name
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t length = 0;
};

Descriptor open_socket() {
  return Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}

}  // namespace

Descriptor listen_to_ranks(const std::string& job) {
  Descriptor listener = open_socket();
  const Address address(job);
  if (listener.get() < 0 || ::bind(listener.get(), address.get(), address.length) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0)
    return Descriptor(-1);
  return listener;
}

Descriptor connect_to_keeper(const std::string& job) {
  Descriptor connection = open_socket();
  const Address address(job);
  if (connection.get() < 0 || ::connect(connection.get(), address.get(), address.length) != 0 ||
      !is_of_same_user(connection.get()))
    return Descriptor(-1);
  return connection;
}

bool send_message(const Descriptor& connection, const std::vector<std::string>& fields, int file) {
  std::string text;
  for (const std::string& field : fields) text += (text.empty() ? "" : "\n") + field;
  if (text.size() > message_bytes) return false;
  return send_with_file(connection.get(), std::as_bytes(std::span(text)), file);
}

bool await_message(const Descriptor& connection, std::chrono::milliseconds limit) {
  pollfd readable{connection.get(), POLLIN, 0};
  return ::poll(&readable, 1, static_cast<int>(limit.count())) > 0;
}

std::optional<KeeperMessage> receive_message(const Descriptor& connection) {
  std::string text(message_bytes, '\0');
  FileMessage received =
      receive_with_file(connection.get(), std::as_writable_bytes(std::span(text)));
  KeeperMessage message{{}, std::move(received.file)};
  if (received.bytes <= 0 || received.cut || received.lost_file) return std::nullopt;
  text.resize(static_cast<std::size_t>(received.bytes));
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    message.fields.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return message;
}

Descriptor file_of(std::string_view text) {
  Descriptor file(::memfd_create("zero text", MFD_CLOEXEC));
  while (file.get() >= 0 && !text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (file.get() < 0 || !text.empty())
    throw SaveError(std::string("cannot hold a text in memory: ") + std::strerror(errno));
  return file;
}

}  // namespace zero::checkpoint
