// Messages between ranks and the keeper of a host (tools/zero/keeper.h), which holds copies of
// checkpoints in memory: a text of at most message_bytes, whose fields are lines, and possibly an
// open file. The socket's name is abstract, so that nothing remains in a file system, and both
// sides accept only processes of the same user.
//
// A rank first sends "hello GENERATION"; then one request at a time. The keeper answers "ok ..." or
// "error TEXT"; in long work the keeper sends "progress" before, so that silence means failure.
//
// request                                answer
// create DIRECTORY SAVE NAME BYTES       the file, to be written by the rank
// complete SAVE NAME                     the next host has the file too
// commit DIRECTORY SAVE, the manifest    the copy is complete on this host
// keep DIRECTORY SAVE                    all but SAVE are freed; with an empty SAVE, all
// newest DIRECTORY [SAVES...]            the manifest of the newest complete copy, except these;
//                                        no file if there is none
// open SAVE NAME                         the file, to be read
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zero/checkpoint/posix_files.h"

namespace zero::checkpoint {

inline constexpr std::size_t message_bytes = std::size_t{64} << 10;

struct KeeperMessage {
  std::vector<std::string> fields;
  Descriptor file{-1};
};

// The listening socket of the keeper of a job on this host; -1, with errno set, on failure.
Descriptor listen_to_ranks(const std::string& job);
// A connection to that keeper; -1 if there is none.
Descriptor connect_to_keeper(const std::string& job);

// Returns false if the peer has gone, or the text is too long.
bool send_message(const Descriptor& connection, const std::vector<std::string>& fields,
                  int file = -1);
// Waits for a message. Returns nothing if the peer has gone.
std::optional<KeeperMessage> receive_message(const Descriptor& connection);
// Returns true if a message has arrived, or the peer has gone, within that time.
bool await_message(const Descriptor& connection, std::chrono::milliseconds limit);

// An unnamed file in memory with this text, for a message. Throws SaveError.
Descriptor file_of(std::string_view text);

}  // namespace zero::checkpoint
