// The rendezvous of ranks that torchrun started, or a script that sets RANK, WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT: a store with the protocol of torch's TCPStore. The host is
// torchrun's agent, otherwise rank 0. The store carries no messages, so all ranks must be on the
// same host.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "zero/base/rendezvous.h"

namespace zero::comm {

// Joins the store that the environment names; rank 0 hosts the store unless torchrun's agent does.
// Throws ConfigError for variables that do not fit together, StalledError if there is no answer
// within the limit, and TopologyError if another process has joined as this rank.
std::shared_ptr<Rendezvous> join_store(std::chrono::milliseconds limit);

namespace store {

// Commands, each followed by arguments; a text is sent as a length of 8 bytes and the bytes.
enum class Query : std::uint8_t { validate = 0, set = 1, get = 3, add = 4, check = 5, ping = 13 };
constexpr std::uint32_t magic = 0x3C85F7CE;  // the argument of validate
// Values at the start are far shorter.
constexpr std::uint64_t longest_text = 1 << 20;

// Appends a number, or a text, in the format of the connection.
template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_text(std::string& bytes, std::string_view text);

}  // namespace store
}  // namespace zero::comm
