// Writes the data of a file from state that will change: a thread copies the state to a staging
// memory as fast as there is room and computes the digests, another writes from there. The progress
// of the copy is visible: if the staging is as large as the data, the state is free long before the
// file is written, and with Copying::first before anything is digested. Belongs to a save; code
// that will change the state may wait for the copy.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "zero/checkpoint/format/digest.h"
#include "zero/checkpoint/safetensors_file.h"

namespace zero::detail {

class BackgroundCopy {
 public:
  // Fills `out` with the data from byte `offset` on.
  using Source = std::function<void(std::int64_t offset, std::span<std::byte> out)>;
  using Create = std::function<std::unique_ptr<checkpoint::SafetensorsWriter>()>;

  // in_turn: a piece is digested while it is in cache. first: copies as soon as the staging has
  // room, because updates wait for the state. elsewhere: there is no source; the staging holds all
  // of the data; the caller fills the staging from the start and reports by note_copied().
  // in_place: as first, into the memory of the file itself, so that nothing has to be written.
  enum class Copying : std::uint8_t { in_turn, first, elsewhere, in_place };

  // The size of the staging is a whole number of pieces, see staging_for().
  BackgroundCopy(std::int64_t bytes, Source source, std::span<std::byte> staging, Copying copying)
      : bytes_(bytes), source_(std::move(source)), staging_(staging), copying_(copying) {}

  // Bytes of staging for `wanted` bytes.
  static std::int64_t staging_for(std::int64_t wanted) {
    return (wanted + piece_bytes - 1) / piece_bytes * piece_bytes;
  }

  // With Copying::in_place, `create` of run() must call this with the memory of the file's data.
  void set_memory(std::span<std::byte> data) { staging_ = data; }
  // Copies until the staging is full, on the calling thread; run() continues from there.
  void copy_ahead() {
    while (has_room()) copy_piece();
  }
  // Creates and writes the file, and returns the digests. Throws any failure. `written` is called
  // with the bytes of each write.
  std::vector<checkpoint::Digest> run(const Create& create,
                                      const std::function<void(std::int64_t)>& written) {
    try {
      if (copying_ == Copying::in_place) create();
      const std::jthread copier([this] { copy_all(); });
      try {
        write_all(create, written);
      } catch (...) {
        fail(std::current_exception());
      }
    } catch (...) {
      fail(std::current_exception());  // the thread could not be started
    }
    change([&] { ended_ = true; });
    if (failure_) std::rethrow_exception(failure_);
    return digester_.finish();
  }
  // Any thread: reports that the first `bytes` of the data are in the staging. Counts whole pieces,
  // because digests are computed per piece.
  void note_copied(std::int64_t bytes) {
    change([&] { copied_ = bytes == bytes_ ? bytes : bytes / piece_bytes * piece_bytes; });
  }
  // Any thread: ends copying; run() throws the cause.
  void fail(std::exception_ptr cause) {
    change([&] {
      if (!failure_) failure_ = std::move(cause);
    });
  }
  // Any thread: returns when the first `bytes` have been copied, or copying has ended; returns
  // false if nothing was copied or written for the time limit.
  bool await_copy(std::int64_t bytes, std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    while (!ended_ && copied_ < bytes) {
      const auto gets_on = [&, before = copied_ + digested_ + written_] {
        return ended_ || copied_ + digested_ + written_ != before;
      };
      if (!advanced_.wait_for(lock, limit, gets_on)) return false;
    }
    return true;
  }

 private:
  // Small enough to be digested in cache.
  static constexpr std::int64_t piece_bytes = std::int64_t{1} << 20;
  // Limit of a write, so that the disk gets the next write while the processor still copies.
  static constexpr std::int64_t longest_write = std::int64_t{4} << 20;

  // Applies a change under the mutex and wakes the waiters.
  template <class Change>
  void change(Change&& apply) {
    {
      const std::lock_guard lock(mutex_);
      apply();
    }
    advanced_.notify_all();
  }
  std::span<std::byte> piece_at(std::int64_t offset) const {
    return staging_.subspan(offset % std::ssize(staging_), std::min(piece_bytes, bytes_ - offset));
  }
  bool has_room() const {
    return copying_ != Copying::elsewhere && copied_ < bytes_ &&
           copied_ - written_ + std::min(piece_bytes, bytes_ - copied_) <= std::ssize(staging_);
  }
  bool copies_first() const { return copying_ == Copying::first || copying_ == Copying::in_place; }
  // Called by the only thread that copies.
  void copy_piece() {
    const std::span<std::byte> piece = piece_at(copied_);
    source_(copied_, piece);
    change([&] { copied_ += std::ssize(piece); });
  }
  void copy_all() {
    try {
      while (digested_ < bytes_) {
        std::unique_lock lock(mutex_);
        advanced_.wait(lock, [this] { return failure_ || copied_ > digested_ || has_room(); });
        if (failure_) return;
        const bool copies = has_room() && (copies_first() || copied_ == digested_);
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
  void write_all(const Create& create, const std::function<void(std::int64_t)>& written) {
    std::unique_ptr<checkpoint::SafetensorsWriter> file;
    if (copying_ != Copying::in_place) file = create();
    while (written_ < bytes_) {
      std::unique_lock lock(mutex_);
      advanced_.wait(lock, [this] { return failure_ || digested_ > written_; });
      if (failure_) return;
      // Digested data that is contiguous in the staging.
      const std::int64_t at = written_ % std::ssize(staging_);
      const std::span<std::byte> digested = staging_.subspan(
          at, std::min({digested_ - written_, std::ssize(staging_) - at, longest_write}));
      lock.unlock();
      if (file) file->write(digested);
      change([&] { written_ += std::ssize(digested); });
      written(std::ssize(digested));
    }
    if (file) file->finish();
  }

  const std::int64_t bytes_;
  const Source source_;
  std::span<std::byte> staging_;
  const Copying copying_;
  checkpoint::ChunkDigester digester_;

  std::mutex mutex_;
  std::condition_variable advanced_;
  // Under the mutex: bytes of the data that have been copied, digested and written.
  std::int64_t copied_ = 0, digested_ = 0, written_ = 0;
  std::exception_ptr failure_;
  bool ended_ = false;  // run() has ended
};

}  // namespace zero::detail
