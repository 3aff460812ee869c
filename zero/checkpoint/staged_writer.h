// Writes the data of one file from state that others will change: one thread copies it to a staging
// memory as fast as that takes it and makes the digests, another writes from there. It tells how
// far the copy has come: where the staging is as large as the data, the state is free long before
// the file is written, and with Copying::first before anything is digested. Owned by a save;
// whoever will change the state may wait for the copy.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "zero/checkpoint/format/digest.h"
#include "zero/checkpoint/safetensors_file.h"

namespace zero::detail {

class StagedWriter {
 public:
  // Fills `out` with the data from byte `offset` on.
  using Source = std::function<void(std::int64_t offset, std::span<std::byte> out)>;
  using Create = std::function<std::unique_ptr<checkpoint::SafetensorsWriter>()>;

  // in_turn: a piece is digested while it is in cache. first: as soon as the staging has room, for
  // the state is waited for. elsewhere: there is no source; the staging holds all of the data, and
  // somebody else fills it from the start and tells by note_copied().
  enum class Copying : std::uint8_t { in_turn, first, elsewhere };

  // The staging is a whole number of pieces, see staging_for().
  StagedWriter(std::int64_t bytes, Source source, std::span<std::byte> staging, Copying copying);

  // Bytes of staging that hold `wanted`.
  static std::int64_t staging_for(std::int64_t wanted);

  // As far as the staging reaches, on the calling thread; run() goes on from there.
  void copy_ahead();
  // Creates the file, writes it and returns its digests. Throws what goes wrong. `written` hears of
  // the bytes of each write.
  std::vector<checkpoint::Digest> run(const Create& create,
                                      const std::function<void(std::int64_t)>& written);
  // Any thread: the first `bytes` of the data lie in the staging.
  void note_copied(std::int64_t bytes);
  // Any thread: nothing more will be copied; run() throws the cause.
  void fail(std::exception_ptr cause);
  // Any thread: returns when the first `bytes` have been copied, or nothing will be copied any
  // more; false when for that long nothing was copied or written.
  bool await_copy(std::int64_t bytes, std::chrono::milliseconds limit);

 private:
  template <class Change>
  void change(Change&& apply);
  std::span<std::byte> to_write() const;
  bool has_room() const;
  bool copies_next() const;
  void copy_piece();
  void copy_all();
  void write_all(const Create& create, const std::function<void(std::int64_t)>& written);
  std::span<std::byte> piece_at(std::int64_t offset) const;

  const std::int64_t bytes_;
  const Source source_;
  const std::span<std::byte> staging_;
  const Copying copying_;
  checkpoint::ChunkDigester digester_;

  std::mutex mutex_;
  std::condition_variable advanced_;
  // Under the mutex: bytes of the data that have been copied, digested and written.
  std::int64_t copied_ = 0, digested_ = 0, written_ = 0;
  std::exception_ptr failure_;
  bool ended_ = false;  // run() has
};

}  // namespace zero::detail
