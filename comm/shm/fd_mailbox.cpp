#include "comm/shm/fd_mailbox.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <span>
#include <thread>

#include "comm/call.h"
#include "comm/errno_text.h"
#include "zero/base/error.h"
#include "zero/base/file_message.h"

namespace zero::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint32_t magic = 0x7a65726f;

struct Body {
  std::uint32_t magic;
  std::int32_t sender;
};

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Address address_of(const FdMailbox::Name& name) {
  Address result;
  result.address.sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract.
  const int written = std::snprintf(result.address.sun_path + 1, sizeof result.address.sun_path - 1,
                                    "zero-%016llx%016llx", static_cast<unsigned long long>(name[0]),
                                    static_cast<unsigned long long>(name[1]));
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                         static_cast<std::size_t>(written));
  return result;
}

Descriptor open_socket() {
  Descriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw_system("cannot open a Unix socket", errno);
  return fd;
}

bool read_message(int socket_fd, FdMailbox::Message& message) {
  Body body{};
  FileMessage received = receive_with_file(socket_fd, std::as_writable_bytes(std::span(&body, 1)));
  message.fd = std::move(received.file);
  if (received.lost_file)
    throw_system("cannot take over shared memory from a rank of this host", EMFILE);
  message.sender = body.sender;
  return received.bytes == sizeof body && body.magic == magic;
}

}  // namespace

FdMailbox::FdMailbox() : listener_(open_socket()) {
  if (getrandom(name_.data(), sizeof name_, 0) != sizeof name_)
    throw Error("getrandom failed: " + errno_text(errno));
  const Address address = address_of(name_);
  if (bind(listener_.get(), address.get(), address.length) != 0 ||
      listen(listener_.get(), SOMAXCONN) != 0)
    throw Error("cannot listen on a Unix socket: " + errno_text(errno));
}

void FdMailbox::send(const Name& to, int sender, int fd, std::chrono::milliseconds limit) {
  const Descriptor connection = open_socket();
  const Address address = address_of(to);
  const auto deadline = Clock::now() + limit;
  // EAGAIN: the receiver's queue is currently full.
  while (connect(connection.get(), address.get(), address.length) != 0) {
    const int error = errno;
    if ((error != EAGAIN && error != EINTR) || Clock::now() > deadline)
      throw TopologyError(
          "a rank of this host cannot be reached through a Unix socket: " + errno_text(error) +
          "; if each rank of a host runs in its own container, use transport mpi");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Body body{magic, sender};
  if (!send_with_file(connection.get(), std::as_bytes(std::span(&body, 1)), fd))
    throw Error("cannot hand a file descriptor to a peer: " + errno_text(errno));
}

FdMailbox::Message FdMailbox::receive(ControlPlane* plane, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (Clock::now() < deadline) {
    if (plane != nullptr) plane->check();
    pollfd waiting{listener_.get(), POLLIN, 0};
    if (poll(&waiting, 1, 10) <= 0) continue;
    const Descriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection || !is_of_same_user(connection.get())) continue;
    // Ranks write right after connecting; any process that does not is dropped.
    pollfd readable{connection.get(), POLLIN, 0};
    Message message;
    if (poll(&readable, 1, 1000) > 0 && read_message(connection.get(), message)) return message;
  }
  throw StalledError("no rank of this host has handed over its shared memory within " +
                     duration_text(limit));
}

}  // namespace zero::comm
