// Notices as messages of a separate group.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/notices.h"
#include "comm/world.h"
#include "zero/base/messages.h"

namespace zero::comm {

class MessageNotices final : public Notices {
 public:
  // `messages` must be among all ranks and carry only notices.
  MessageNotices(std::unique_ptr<Messages> messages, const Topology& topology);

  void send(const Cause& cause) noexcept override;
  void flush() noexcept override;
  void poll(ControlPage& page) override;
  void forsake() noexcept override { messages_->forsake(); }

 private:
  std::unique_ptr<Messages> messages_;
  std::vector<int> remote_ranks_;
  std::vector<Cause> incoming_;  // by remote rank
  Cause outgoing_;
  std::mutex mutex_;
  std::unique_ptr<Pending> in_, out_;
};

}  // namespace zero::comm
