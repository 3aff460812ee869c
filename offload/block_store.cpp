#include "offload/block_store.h"

#include <algorithm>
#include <stdexcept>

#include "zero/base/error.h"

namespace zero::offload {

BlockStore::BlockStore(StoreOptions options) : options_(std::move(options)) {
  options_.block_bytes = aligned(options_.block_bytes);
}

BlockStore::~BlockStore() = default;

int BlockStore::add(std::string name, std::int64_t bytes) {
  if (file_) throw std::logic_error("block store: an array was added after open()");
  const std::int64_t size = aligned(bytes);
  arrays_.push_back({std::move(name), file_bytes_, size, blocks_.size()});
  blocks_.resize(blocks_.size() + static_cast<std::size_t>((size + options_.block_bytes - 1) /
                                                           options_.block_bytes));
  file_bytes_ += size;
  return static_cast<int>(arrays_.size()) - 1;
}

void BlockStore::open() {
  file_ = std::make_unique<BlockFile>(options_.directory, file_bytes_);
  add_notices(file_->notices());
}

std::unique_ptr<BlockStore::Channel> BlockStore::create_channel(
    std::vector<std::span<std::byte>> buffers) {
  return std::unique_ptr<Channel>(new Channel(*this, std::move(buffers)));
}

void BlockStore::add_notices(const std::vector<std::string>& more) {
  for (const std::string& notice : more)
    if (std::find(notices_.begin(), notices_.end(), notice) == notices_.end())
      notices_.push_back(notice);
}

std::string BlockStore::describe(int number, std::size_t block) const {
  const StoredArray& array = arrays_[number];
  return "block " + std::to_string(block - array.first_block) + " of " + array.name;
}

std::string BlockStore::diagnose(std::size_t number, std::uint64_t found) const {
  const std::lock_guard lock(recording_);
  const Block& block = blocks_[number];
  if (block.generation > 1 && found == block.checksum_before)
    return "it still holds generation " + std::to_string(block.generation - 1) +
           ": a write never reached the disk";
  for (std::size_t e = 0; e < arrays_.size(); ++e) {
    const std::size_t end = e + 1 < arrays_.size() ? arrays_[e + 1].first_block : blocks_.size();
    for (std::size_t b = arrays_[e].first_block; b < end; ++b)
      if (b != number && blocks_[b].generation > 0 && blocks_[b].checksum == found)
        return "it holds " + describe(static_cast<int>(e), b);
  }
  return "its checksum differs from what was written as generation " +
         std::to_string(block.generation);
}

}  // namespace zero::offload
