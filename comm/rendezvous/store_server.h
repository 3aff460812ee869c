// Hosts the store through which the ranks of a job meet, if torchrun's agent does not.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "zero/base/descriptor.h"

namespace zero::comm {

// Answers on a background thread, from construction until destruction.
class StoreServer {
 public:
  // Takes a listening socket.
  explicit StoreServer(Descriptor listener);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;

 private:
  struct Client {
    Descriptor socket;
    std::string unread;
  };

  void serve();
  void accept_client();
  // Returns false if the client has left, or sends what is no command.
  bool read_from(Client& client);
  bool answer_all(Client& client);
  // Removes the first command and returns the answer; `whole` is false if the command is
  // incomplete.
  std::string answer(std::string_view& unread, bool& whole);

  Descriptor listener_;
  std::vector<Client> clients_;
  std::map<std::string, std::string, std::less<>> values_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace zero::comm
