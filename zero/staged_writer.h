// Writes the data of one file from state that others will change: copies it to a staging memory as
// fast as that takes it, writes from there, and tells how far the copy has come. Where the staging
// is as large as the data, the state is free long before the file is written. Owned by a save; one
// thread runs it, one other waits for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "zero/checkpoint/shard.h"

namespace zero::detail {

class StagedWriter {
 public:
  // Fills `out` with the data from byte `offset` on.
  using Source = std::function<void(std::int64_t offset, std::span<std::byte> out)>;
  using Create = std::function<std::unique_ptr<checkpoint::ShardWriter>()>;

  StagedWriter(std::int64_t bytes, Source source, std::span<std::byte> staging);

  // Bytes of staging that hold `wanted`, in whole pieces.
  static std::int64_t staging_for(std::int64_t wanted);

  // As far as the staging reaches, on the calling thread; run() goes on from there.
  void copy_ahead();
  // The file is created after the first copies, which somebody may be waiting for.
  std::vector<checkpoint::Digest> run(const Create& create);
  // Any thread: returns when the first `bytes` have been copied, or the writing has failed.
  void await_copy(std::int64_t bytes);

 private:
  bool copy_piece();
  void publish(std::int64_t copied);

  const std::int64_t bytes_;
  const Source source_;
  const std::span<std::byte> staging_;
  std::int64_t written_ = 0;
  std::atomic<std::int64_t> copied_{0};
  std::mutex mutex_;
  std::condition_variable advanced_;
};

}  // namespace zero::detail
