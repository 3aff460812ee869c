#include "tools/calibrate/file_rates.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "zero/base/error.h"

namespace zero::calibrate {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t block_bytes = std::size_t{8} << 20, alignment = 4096;
constexpr int blocks = 32;

class ScratchFile {
 public:
  explicit ScratchFile(const std::string& directory) : directory_(directory) {
    path_ = directory + "/zero-calibrate-XXXXXX";
    file_ = mkstemp(path_.data());
    if (file_ < 0) fail("no file can be made in it");
    unlink(path_.c_str());
    fcntl(file_, F_SETFL, fcntl(file_, F_GETFL) | O_DIRECT);  // without effect on some file systems
  }
  ~ScratchFile() { close(file_); }
  ScratchFile(const ScratchFile&) = delete;

  // Moves all blocks by pread or pwrite; returns bytes per second.
  template <class Move>
  double rate(const char* what, Move move) {
    const auto begin = Clock::now();
    for (int block = 0; block < blocks; ++block)
      if (move(file_, static_cast<off_t>(block) * static_cast<off_t>(block_bytes)) !=
          static_cast<ssize_t>(block_bytes))
        fail(what);
    if (fdatasync(file_) != 0) fail(what);
    return blocks * static_cast<double>(block_bytes) /
           std::chrono::duration<double>(Clock::now() - begin).count();
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw ConfigError("--dir " + directory_ + ": " + what + ": " + std::strerror(errno));
  }

  const std::string directory_;
  std::string path_;
  int file_ = -1;
};

}  // namespace

FileRates measure_file(const std::string& directory) {
  const std::unique_ptr<void, decltype(&std::free)> block(
      std::aligned_alloc(alignment, block_bytes), &std::free);
  std::memset(block.get(), 1, block_bytes);
  ScratchFile file(directory);
  FileRates rates;
  rates.write = file.rate("256 MiB cannot be written", [&](int descriptor, off_t at) {
    return pwrite(descriptor, block.get(), block_bytes, at);
  });
  rates.read = file.rate("it cannot be read", [&](int descriptor, off_t at) {
    return pread(descriptor, block.get(), block_bytes, at);
  });
  return rates;
}

}  // namespace zero::calibrate
