#include "zero/base/file_message.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace zero {

namespace {

// A message, with room for a file.
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

template <class Call>
ssize_t unless_interrupted(const Call& call) {
  ssize_t result = -1;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

}  // namespace

bool is_of_same_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == ::geteuid();
}

bool send_with_file(int socket, std::span<const std::byte> bytes, int file) {
  Packet packet(const_cast<std::byte*>(bytes.data()), bytes.size());
  if (file < 0) {
    packet.header.msg_controllen = 0;
  } else {
    cmsghdr* header = CMSG_FIRSTHDR(&packet.header);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(header), &file, sizeof file);
  }
  return unless_interrupted([&] { return ::sendmsg(socket, &packet.header, MSG_NOSIGNAL); }) ==
         std::ssize(bytes);
}

FileMessage receive_with_file(int socket, std::span<std::byte> room) {
  Packet packet(room.data(), room.size());
  FileMessage message;
  message.bytes =
      unless_interrupted([&] { return ::recvmsg(socket, &packet.header, MSG_CMSG_CLOEXEC); });
  if (message.bytes < 0) return message;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&packet.header);
      header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int file = -1;
    std::memcpy(&file, CMSG_DATA(header), sizeof file);
    message.file = Descriptor(file);
  }
  message.cut = (packet.header.msg_flags & MSG_TRUNC) != 0;
  message.lost_file = (packet.header.msg_flags & MSG_CTRUNC) != 0;
  return message;
}

}  // namespace zero
