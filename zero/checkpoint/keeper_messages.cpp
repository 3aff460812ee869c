#include "zero/checkpoint/keeper_messages.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "zero/base/error.h"

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

// A message with room for a file.
struct Packet {
  Packet(void* data, std::size_t size) : part{data, size} {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  Packet(const Packet&) = delete;

  iovec part;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
};

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
      !is_same_user(connection))
    return Descriptor(-1);
  return connection;
}

bool is_same_user(const Descriptor& connection) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == ::geteuid();
}

bool send_message(const Descriptor& connection, const std::vector<std::string>& fields, int file) {
  std::string text;
  for (const std::string& field : fields) text += (text.empty() ? "" : "\n") + field;
  if (text.size() > message_bytes) return false;
  Packet packet(text.data(), text.size());
  if (file < 0) {
    packet.header.msg_controllen = 0;
  } else {
    cmsghdr* header = CMSG_FIRSTHDR(&packet.header);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(header), &file, sizeof file);
  }
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(connection.get(), &packet.header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == std::ssize(text);
}

bool await_message(const Descriptor& connection, std::chrono::milliseconds limit) {
  pollfd readable{connection.get(), POLLIN, 0};
  return ::poll(&readable, 1, static_cast<int>(limit.count())) > 0;
}

std::optional<KeeperMessage> receive_message(const Descriptor& connection) {
  std::string text(message_bytes, '\0');
  Packet packet(text.data(), text.size());
  ssize_t got = -1;
  do {
    got = ::recvmsg(connection.get(), &packet.header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return std::nullopt;
  int file = -1;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&packet.header);
      header != nullptr && header->cmsg_type == SCM_RIGHTS)
    std::memcpy(&file, CMSG_DATA(header), sizeof file);
  KeeperMessage message{{}, Descriptor(file)};
  if ((packet.header.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) return std::nullopt;
  text.resize(static_cast<std::size_t>(got));
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
