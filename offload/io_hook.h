// Hook that lets tests observe every system call of the block store, and make a call fail. A single
// hook per process; production code sets none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace zero::offload {

enum class IoOp : std::uint8_t {
  create,            // of a file without a name
  open_direct,       // O_DIRECT requested
  reserve,           // the file's blocks
  set_up_uring,      // of a queue
  register_buffers,  // of a queue
  read,
  write,
};

struct IoEvent {
  IoOp op{};
  std::int64_t offset = 0;         // of a read or write
  std::span<std::byte> data = {};  // of a read or write
};

// Return values of a hook, in addition to 0 (continue) and an errno to fail with.
inline constexpr int io_half = -1;   // move half of the bytes
inline constexpr int io_lost = -2;   // report success and move nothing
inline constexpr int io_never = -3;  // never complete
inline constexpr int io_late = -4;   // carry out when nothing else is in flight

// Called by any thread.
using IoHook = std::function<int(const IoEvent&)>;
// For tests, while no store is in use; empty: none.
void set_io_hook(IoHook hook);
int ask_io_hook(const IoEvent& event);

}  // namespace zero::offload
