#include "zero/staged_writer.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace zero::detail {

namespace {

// Small enough to be digested in cache, large enough for the disk.
constexpr std::int64_t piece_bytes = std::int64_t{1} << 20;
constexpr std::chrono::seconds progress_interval{30};

// Others wait for the slowest rank: that one says how far it is.
class Progress {
 public:
  Progress(const std::string& path, std::int64_t bytes) : path_(path), bytes_(bytes) {}

  void show(std::int64_t written) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < progress_interval) return;
    last_ = now;
    std::fprintf(stderr, "zero: checkpoint: %s: %.1f of %.1f MB written\n", path_.c_str(),
                 static_cast<double>(written) / 1e6, static_cast<double>(bytes_) / 1e6);
  }

 private:
  const std::string& path_;
  const std::int64_t bytes_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

StagedWriter::StagedWriter(std::int64_t bytes, Source source, std::span<std::byte> staging)
    : bytes_(bytes), source_(std::move(source)), staging_(staging) {}

std::int64_t StagedWriter::staging_for(std::int64_t wanted) {
  return (wanted + piece_bytes - 1) / piece_bytes * piece_bytes;
}

void StagedWriter::publish(std::int64_t copied) {
  {
    const std::lock_guard lock(mutex_);
    copied_.store(copied, std::memory_order_release);
  }
  advanced_.notify_all();
}

bool StagedWriter::copy_piece() {
  const std::int64_t copied = copied_.load(std::memory_order_relaxed);
  const auto capacity = static_cast<std::int64_t>(staging_.size());
  const std::int64_t count = std::min(piece_bytes, bytes_ - copied);
  if (count == 0 || copied - written_ + count > capacity) return false;
  source_(copied, staging_.subspan(static_cast<std::size_t>(copied % capacity),
                                   static_cast<std::size_t>(count)));
  publish(copied + count);
  return true;
}

void StagedWriter::copy_ahead() {
  while (copy_piece()) {
  }
}

std::vector<checkpoint::Digest> StagedWriter::run(const Create& create) {
  try {
    copy_ahead();
    const std::unique_ptr<checkpoint::ShardWriter> file = create();
    Progress progress(file->path(), bytes_);
    const auto capacity = static_cast<std::int64_t>(staging_.size());
    while (written_ < bytes_) {
      const std::int64_t count = std::min(piece_bytes, bytes_ - written_);
      file->write(staging_.subspan(static_cast<std::size_t>(written_ % capacity),
                                   static_cast<std::size_t>(count)));
      written_ += count;
      progress.show(written_);
      copy_ahead();
    }
    return file->finish();
  } catch (...) {
    publish(bytes_);
    throw;
  }
}

void StagedWriter::await_copy(std::int64_t bytes) {
  if (copied_.load(std::memory_order_acquire) >= bytes) return;
  std::unique_lock lock(mutex_);
  advanced_.wait(lock, [&] { return copied_.load(std::memory_order_acquire) >= bytes; });
}

}  // namespace zero::detail
