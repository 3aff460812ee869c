#include "zero/checkpoint/staged_writer.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace zero::detail {

namespace {

// Small enough to be digested in cache.
constexpr std::int64_t piece_bytes = std::int64_t{1} << 20;
// Of one write: the disk gets the next while the processor still copies, as long as they are long.
constexpr std::int64_t longest_write = std::int64_t{4} << 20;

}  // namespace

StagedWriter::StagedWriter(std::int64_t bytes, Source source, std::span<std::byte> staging,
                           Copying copying)
    : bytes_(bytes), source_(std::move(source)), staging_(staging), copying_(copying) {}

std::int64_t StagedWriter::staging_for(std::int64_t wanted) {
  return (wanted + piece_bytes - 1) / piece_bytes * piece_bytes;
}

std::span<std::byte> StagedWriter::piece_at(std::int64_t offset) const {
  return staging_.subspan(offset % std::ssize(staging_), std::min(piece_bytes, bytes_ - offset));
}

// Of what the mutex guards.
template <class Change>
void StagedWriter::change(Change&& apply) {
  {
    const std::lock_guard lock(mutex_);
    apply();
  }
  advanced_.notify_all();
}

// What is digested and lies in one stretch.
std::span<std::byte> StagedWriter::to_write() const {
  const std::int64_t at = written_ % std::ssize(staging_);
  return staging_.subspan(
      at, std::min({digested_ - written_, std::ssize(staging_) - at, longest_write}));
}

bool StagedWriter::has_room() const {
  return copying_ != Copying::elsewhere && copied_ < bytes_ &&
         copied_ - written_ + std::min(piece_bytes, bytes_ - copied_) <= std::ssize(staging_);
}

// By the one thread that copies.
void StagedWriter::copy_piece() {
  const std::span<std::byte> piece = piece_at(copied_);
  source_(copied_, piece);
  change([&] { copied_ += std::ssize(piece); });
}

// In whole pieces, which are what is digested.
void StagedWriter::note_copied(std::int64_t bytes) {
  change([&] { copied_ = bytes == bytes_ ? bytes : bytes / piece_bytes * piece_bytes; });
}

void StagedWriter::copy_ahead() {
  while (has_room()) copy_piece();
}

bool StagedWriter::copies_next() const {
  return has_room() && (copying_ == Copying::first || copied_ == digested_);
}

void StagedWriter::copy_all() {
  try {
    while (digested_ < bytes_) {
      std::unique_lock lock(mutex_);
      advanced_.wait(lock, [this] { return failure_ || copied_ > digested_ || has_room(); });
      if (failure_) return;
      const bool copies = copies_next();
      lock.unlock();
      if (copies) {
        copy_piece();
        continue;
      }
      const std::span<std::byte> piece = piece_at(digested_);
      digester_.update(piece);
      change([&] { digested_ += std::ssize(piece); });
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

void StagedWriter::write_all(const Create& create,
                             const std::function<void(std::int64_t)>& written) {
  const std::unique_ptr<checkpoint::SafetensorsWriter> file = create();
  while (written_ < bytes_) {
    std::span<std::byte> digested;
    {
      std::unique_lock lock(mutex_);
      advanced_.wait(lock, [this] { return failure_ || digested_ > written_; });
      if (failure_) return;
      digested = to_write();
    }
    file->write(digested);
    change([&] { written_ += std::ssize(digested); });
    written(std::ssize(digested));
  }
  file->finish();
}

void StagedWriter::fail(std::exception_ptr cause) {
  change([&] {
    if (!failure_) failure_ = std::move(cause);
  });
}

std::vector<checkpoint::Digest> StagedWriter::run(
    const Create& create, const std::function<void(std::int64_t)>& written) {
  try {
    const std::jthread copier([this] { copy_all(); });
    try {
      write_all(create, written);
    } catch (...) {
      fail(std::current_exception());
    }
  } catch (...) {
    fail(std::current_exception());  // there is no thread
  }
  change([&] { ended_ = true; });
  if (failure_) std::rethrow_exception(failure_);
  return digester_.finish();
}

bool StagedWriter::await_copy(std::int64_t bytes, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  while (!ended_ && copied_ < bytes) {
    const auto gets_on = [&, before = copied_ + digested_ + written_] {
      return ended_ || copied_ + digested_ + written_ != before;
    };
    if (!advanced_.wait_for(lock, limit, gets_on)) return false;
  }
  return true;
}

}  // namespace zero::detail
