// Connections between the keepers of a job, over TCP. A keeper accepts only a peer that sends the
// keeper's token, and is trusted only after answering with a second token: `zero run` gives both to
// the job's keepers, over pipes; the exchange of the tokens has a limit of 10 s. Messages are lists
// of texts; each connection carries one request. One thread per connection. Throws SaveError with
// the name of the peer.
//
// request                                  answer
// store GENERATION DIRECTORY SAVE NAME BYTES, then the file     ok
// held DIRECTORY                           ok COUNT, then a view in each message
// manifest SAVE                            ok TEXT
// fetch SAVE NAME                          ok BYTES, then the file
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/zero/copy_store.h"

namespace zero::tool {

struct KeeperPeer {
  std::string host;
  int port = 0;
  std::string token, answer;
};

class PeerConnection {
 public:
  // Connects, and exchanges the tokens.
  explicit PeerConnection(const KeeperPeer& peer);
  // Takes an accepted connection, and exchanges the tokens; throws if the peer lacks the token.
  PeerConnection(Descriptor connection, const std::string& token, const std::string& answer);

  void send(const std::vector<std::string>& texts);
  std::vector<std::string> receive();
  // Sends a request and returns its answer after "ok". Throws for "error TEXT".
  std::vector<std::string> ask(const std::vector<std::string>& request);
  // Followed by the digest of the contents, which receive_file() compares. `progress` is called
  // after each piece.
  void send_file(const CompleteFile& file, const std::function<void()>& progress);
  void receive_file(const Descriptor& file, std::int64_t bytes,
                    const std::function<void()>& progress);

 private:
  void write_all(const void* data, std::size_t bytes);
  void read_all(void* data, std::size_t bytes);
  void begin_tokens();
  void end_tokens();
  void set_limit(int seconds);
  [[noreturn]] void fail(const std::string& what, int error) const;

  std::string name_;
  Descriptor connection_;
  std::int64_t longest_ = 0;  // message, in bytes
  // The end of the exchange of tokens, so that no process keeps a connection by single bytes.
  std::optional<std::chrono::steady_clock::time_point> deadline_;
};

// Listens on any address and a free port, which it returns; -1 on failure.
Descriptor listen_to_peers(int& port);

}  // namespace zero::tool
