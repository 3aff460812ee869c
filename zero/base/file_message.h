// Messages over Unix sockets that may carry an open file, between processes of the same user.
#pragma once

#include <cstddef>
#include <span>

#include "zero/base/descriptor.h"

namespace zero {

// Whether the process at the other end of the connection has this process's user.
bool is_of_same_user(int socket);

// Sends a message, with a file unless that is -1. Returns false, with errno set, if the message was
// not sent as a whole.
bool send_with_file(int socket, std::span<const std::byte> bytes, int file);

struct FileMessage {
  std::ptrdiff_t bytes = -1;  // received; 0: the peer has gone; -1: an error, in errno
  Descriptor file;            // none if the message had no file
  bool cut = false;           // the message was longer than the room
  bool lost_file = false;     // this process has no number left for the file
};
FileMessage receive_with_file(int socket, std::span<std::byte> room);

}  // namespace zero
