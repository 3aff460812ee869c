#include "tools/zero/keeper.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "tools/zero/commands.h"
#include "tools/zero/copy_store.h"
#include "tools/zero/keeper_newcomers.h"
#include "tools/zero/keeper_peers.h"
#include "zero/base/file_message.h"
#include "zero/base/thread.h"
#include "zero/checkpoint/checkpoint_directory.h"
#include "zero/checkpoint/format/manifest.h"
#include "zero/checkpoint/generation.h"
#include "zero/checkpoint/keeper_messages.h"

namespace zero::tool {
namespace {

using checkpoint::KeeperMessage;
using checkpoint::receive_message;
using checkpoint::send_message;
using Clock = std::chrono::steady_clock;
using Fields = std::vector<std::string>;

constexpr int most_ranks = 1024, most_peers = 256;      // connections at a time, with the token
constexpr std::chrono::milliseconds accept_pause{100};  // after a failure: no descriptor is left
constexpr std::chrono::seconds generation_wait{5};      // until the line for a new start arrives
constexpr std::chrono::milliseconds progress_interval{500};

std::int64_t number_in(const std::string& text) {
  std::int64_t number = -1;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data(), end, number).ptr != end || number < 0)
    throw SaveError("\"" + text + "\" is no number");
  return number;
}

std::string text_of(const in_addr& address) {
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

// Throws unless a request has this many fields, including the name.
void expect(const Fields& request, std::size_t fields) {
  if (request.size() != fields)
    throw SaveError("a request \"" + request.front() + "\" with " +
                    std::to_string(request.size() - 1) + " fields");
}

Fields fields_of(const CopyView& view) {
  Fields fields{view.directory, view.save_id, std::to_string(view.sequence),
                std::to_string(view.step), std::to_string(view.needs.size())};
  fields.insert(fields.end(), view.needs.begin(), view.needs.end());
  fields.insert(fields.end(), view.holds.begin(), view.holds.end());
  return fields;
}

CopyView view_of(const Fields& fields) {
  constexpr std::size_t head = 5;
  if (fields.size() < head) throw SaveError("a view of a copy is too short");
  CopyView view{fields[0], fields[1], number_in(fields[2]), number_in(fields[3]), {}, {}};
  const std::int64_t needs = number_in(fields[4]);
  if (needs > std::ssize(fields) - static_cast<std::ptrdiff_t>(head))
    throw SaveError("a view of a copy is too short");
  const auto begin = fields.begin() + head;
  view.needs.assign(begin, begin + needs);
  view.holds.assign(begin + needs, fields.end());
  return view;
}

class Keeper {
 public:
  Keeper(std::string job, Descriptor ranks, Descriptor peers)
      : job_(std::move(job)), ranks_(std::move(ranks)), listener_(std::move(peers)) {}

  void run(int port) {
    const auto anybody = [](const Descriptor&, const in_addr&) { return std::int64_t{0}; };
    accept_on(ranks_, most_ranks, anybody,
              [this](Descriptor connection, std::int64_t) { serve_rank(connection); });
    const auto newcomer = [this](const Descriptor& connection, const in_addr& address) {
      return newcomers_.add(connection, text_of(address));
    };
    if (listener_.get() >= 0)
      accept_on(listener_, most_peers + KeeperNewcomers::most, newcomer,
                [this](Descriptor connection, std::int64_t number) {
                  serve_peer(std::move(connection), number);
                });
    say("port " + std::to_string(port) + " " + token_ + " " + answer_);
    for (std::string line; std::getline(std::cin, line);) take_line(line);
    _exit(0);  // threads may be in any call
  }

 private:
  struct Peers {
    std::int64_t generation = 0;
    int next = -1;
    std::vector<KeeperPeer> others;
  };

  void say(const std::string& line) {
    const std::lock_guard lock(mutex_);
    std::cout << line << std::endl;
  }

  // Serves each connection on a separate thread, with the number that `arrive` returns, in order of
  // arrival. Connections above `most` are closed.
  template <class Arrive, class Serve>
  void accept_on(const Descriptor& listener, int most, Arrive arrive, Serve serve) {
    start_thread("a keeper's connections", [&listener, most, arrive, serve] {
      const auto count = std::make_shared<std::atomic<int>>(0);
      while (true) {
        sockaddr_in from{};  // an address of TCP; longer addresses are cut
        socklen_t length = sizeof from;
        Descriptor connection(
            ::accept4(listener.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC));
        if (connection.get() < 0) std::this_thread::sleep_for(accept_pause);
        if (connection.get() < 0 || *count >= most) continue;
        ++*count;
        const std::int64_t number = arrive(connection, from.sin_addr);
        const auto shared = std::make_shared<Descriptor>(std::move(connection));
        start_thread("a keeper's connection", [count, shared, number, serve] {
          try {
            serve(std::move(*shared), number);
          } catch (const std::exception&) {
            // The peer has gone, or is not of this job.
          }
          --*count;
        }).detach();
      }
    }).detach();
  }

  void take_line(const std::string& line) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "newest")
      start_thread("a keeper's search", [this] {
        say("newest " + std::to_string(find_newest("", {}, [] {}).step));
      }).detach();
    if (kind != "peers") return;
    Peers peers;
    words >> peers.generation >> peers.next;
    for (KeeperPeer peer; words >> peer.host >> peer.port >> peer.token >> peer.answer;)
      peers.others.push_back(peer);
    const std::lock_guard lock(mutex_);
    peers_ = std::move(peers);
    changed_.notify_all();
  }

  Peers peers() const {
    const std::lock_guard lock(mutex_);
    return peers_;
  }

  // The line for a new start may arrive after its first rank.
  void admit(const std::string& generation) {
    const auto own = checkpoint::parse_generation(generation);
    if (!own || own->job != job_) throw SaveError("serves another job");
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, generation_wait, [&] { return peers_.generation >= own->number; });
    if (peers_.generation != own->number)
      throw SaveError("serves generation " + std::to_string(peers_.generation) +
                      ", and this rank is of generation " + std::to_string(own->number));
  }

  void serve_rank(const Descriptor& connection) {
    if (!is_of_same_user(connection.get())) return;
    std::string generation;
    while (auto message = receive_message(connection)) {
      std::optional<Descriptor> file;
      Fields reply{"ok"};
      try {
        if (message->fields.front() == "hello" && message->fields.size() == 2)
          generation = message->fields[1];
        admit(generation);
        file.emplace(answer_rank(*message, connection));
      } catch (const std::exception& error) {
        reply = {"error", std::string(error.what()).substr(0, 4096)};
      }
      if (!send_message(connection, reply, file ? file->get() : -1)) return;
    }
  }

  // Returns the file of the answer, if any.
  Descriptor answer_rank(KeeperMessage& message, const Descriptor& connection) {
    const Fields& request = message.fields;
    const std::string& kind = request.front();
    const auto progress = [&connection, last = Clock::now()]() mutable {
      if (Clock::now() - last < progress_interval) return;
      last = Clock::now();
      send_message(connection, {"progress"});
    };
    if (kind == "hello") return Descriptor(-1);
    if (kind == "create") {
      expect(request, 5);
      return store_.create(request[1], request[2], request[3], number_in(request[4]), progress);
    }
    if (kind == "complete") {
      expect(request, 3);
      send_to_next(store_.complete(request[1], request[2]), request[1], request[2], progress);
      return Descriptor(-1);
    }
    if (kind == "commit") {
      expect(request, 3);
      const checkpoint::File manifest(std::move(message.file), "the manifest of a copy");
      store_.commit(request[1], request[2], manifest.read_text(checkpoint::max_manifest_bytes));
      return Descriptor(-1);
    }
    if (kind == "keep") {
      expect(request, 3);
      store_.keep_only(request[1], request[2]);
      return Descriptor(-1);
    }
    if (kind == "open") {
      expect(request, 3);
      return open(request[1], request[2], progress);
    }
    if (kind != "newest" || request.size() < 2) throw SaveError("an unknown request");
    const NewestCopy newest =
        find_newest(request[1], {request.begin() + 2, request.end()}, progress);
    if (newest.save_id.empty()) return Descriptor(-1);
    return checkpoint::file_of(manifest_of(newest.save_id));
  }

  void send_to_next(const CompleteFile& file, const std::string& save_id, const std::string& name,
                    const std::function<void()>& progress) {
    const Peers now = peers();
    if (now.next < 0 || now.next >= std::ssize(now.others)) return;
    PeerConnection peer(now.others[now.next]);
    peer.send({"store", std::to_string(now.generation), file.directory, save_id, name,
               std::to_string(file.bytes)});
    peer.send_file(file, progress);
    const Fields answer = peer.receive();
    if (answer.size() != 1)
      throw SaveError("the keeper of host " + now.others[now.next].host + ": " +
                      (answer.size() > 1 ? answer[1] : "gives no reason"));
  }

  // Calls use(connection) for each peer that answers; silent peers do not count.
  template <class Use>
  void for_peers(Use&& use) {
    for (const KeeperPeer& each : peers().others) {
      try {
        PeerConnection peer(each);
        if (use(peer)) return;
      } catch (const Error&) {
        // The peer has gone, or lacks the requested data.
      }
    }
  }

  NewestCopy find_newest(const std::string& directory, const std::set<std::string>& without,
                         const Progress& progress) {
    std::vector<CopyView> views = store_.views(directory);
    for_peers([&](PeerConnection& peer) {
      progress();
      const Fields answer = peer.ask({"held", directory});
      std::vector<CopyView> found;
      for (std::int64_t left = number_in(answer.at(0)); left > 0; --left)
        found.push_back(view_of(peer.receive()));
      views.insert(views.end(), found.begin(), found.end());
      return false;
    });
    return newest_copy(views, without);
  }

  std::string manifest_of(const std::string& save_id) {
    std::string text = store_.manifest_of(save_id);
    if (text.empty())
      for_peers([&](PeerConnection& peer) {
        text = peer.ask({"manifest", save_id}).at(0);
        return !text.empty();
      });
    if (text.empty()) throw SaveError("the manifest of the copy is lost");
    return text;
  }

  // From this keeper, otherwise from the first peer that has the file.
  Descriptor open(const std::string& save_id, const std::string& name,
                  const std::function<void()>& progress) {
    if (std::optional<CompleteFile> own = store_.open(save_id, name)) return std::move(own->file);
    std::unique_ptr<Descriptor> found;
    for_peers([&](PeerConnection& peer) {
      const std::int64_t bytes = number_in(peer.ask({"fetch", save_id, name}).at(0));
      Descriptor file = file_in_memory(name, bytes, progress);
      peer.receive_file(file, bytes, progress);
      found = std::make_unique<Descriptor>(std::move(file));
      return true;
    });
    if (!found) throw SaveError("no keeper has " + name + " of this copy any more");
    return std::move(*found);
  }

  PeerConnection admitted(Descriptor connection, std::int64_t number) {
    try {
      PeerConnection peer(std::move(connection), token_, answer_);
      newcomers_.remove(number);
      return peer;
    } catch (...) {
      newcomers_.remove(number);
      throw;
    }
  }

  void serve_peer(Descriptor connection, std::int64_t number) {
    PeerConnection peer = admitted(std::move(connection), number);
    const Fields request = peer.receive();
    if (request.empty()) return;
    try {
      answer_peer(peer, request);
    } catch (const std::exception& error) {
      peer.send({"error", error.what()});
    }
  }

  void answer_peer(PeerConnection& peer, const Fields& request) {
    const std::string& kind = request.front();
    if (kind == "store") {
      expect(request, 6);
      if (number_in(request[1]) != peers().generation)
        throw SaveError("serves another generation than " + request[1]);
      const std::int64_t bytes = number_in(request[5]);
      const Descriptor file = store_.create(request[2], request[3], request[4], bytes, [] {});
      peer.receive_file(file, bytes, [] {});
      store_.complete(request[3], request[4]);
      return peer.send({"ok"});
    }
    if (kind == "held") {
      expect(request, 2);
      const std::vector<CopyView> views = store_.views(request[1]);
      peer.send({"ok", std::to_string(views.size())});
      for (const CopyView& view : views) peer.send(fields_of(view));
      return;
    }
    if (kind == "manifest") {
      expect(request, 2);
      return peer.send({"ok", store_.manifest_of(request[1])});
    }
    expect(request, 3);
    const std::optional<CompleteFile> file = store_.open(request[1], request[2]);
    if (kind != "fetch" || !file) throw SaveError("does not have " + request[2]);
    peer.send({"ok", std::to_string(file->bytes)});
    peer.send_file(*file, [] {});
  }

  const std::string job_;
  const Descriptor ranks_, listener_;
  const std::string token_ = checkpoint::random_id(), answer_ = checkpoint::random_id();
  CopyStore store_;
  KeeperNewcomers newcomers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Peers peers_;
};

}  // namespace

void run_keeper(const std::string& job, bool has_peers) {
  std::signal(SIGPIPE, SIG_IGN);
  const auto require = [](const Descriptor& socket, const char* name) {
    if (socket.get() >= 0) return;
    const int reason = errno;
    throw TopologyError(
        std::string("the keeper of peer copies cannot open its socket for ") + name + ": " +
        std::strerror(reason) +
        (reason == EADDRINUSE ? "; a process of another user may have its name" : ""));
  };
  Descriptor ranks = checkpoint::listen_to_ranks(job), peers(-1);
  require(ranks, "ranks");
  int port = 0;
  if (has_peers) require(peers = listen_to_peers(port), "other hosts");
  Keeper(job, std::move(ranks), std::move(peers)).run(port);
}

void add_keeper(CLI::App& app) {
  struct Options {
    std::string job;
    bool has_peers = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("keeper", "Started by `zero run` for peer copies");
  command->add_option("JOB", options->job)->required();
  command->add_flag("--peers", options->has_peers);
  command->callback([options] { run_keeper(options->job, options->has_peers); });
}

}  // namespace zero::tool
