// How the ranks of a job find each other without MPI: a place where each can leave a few bytes
// under a name, and wait for those of another. A program with a launcher of its own (a scheduler,
// Ray, Kubernetes) implements it over what it has, and gives it to RuntimeOptions::rendezvous.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "zero/base/messages.h"

namespace zero {

// One object on each rank. It is used by one thread at a time, while a Runtime starts and, if
// ranks are on several hosts, in collective calls that make groups.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Keys are set once each.
  virtual void set(const std::string& key, std::string_view value) = 0;
  // Waits until a rank has set the key. Throws StalledError, which names the key, when none has
  // within the limit.
  virtual std::string get(const std::string& key, std::chrono::milliseconds limit) = 0;
  // Until all ranks have called it with that name, which serves once.
  virtual void barrier(const std::string& name, std::chrono::milliseconds limit);
  // Collective. A transport of messages for ranks on several hosts, under a name that serves once;
  // null: there is none, and all ranks have to be on one host.
  virtual std::unique_ptr<Messages> connect(const std::string& name,
                                            std::chrono::milliseconds limit);
  // "the store at 127.0.0.1:29500": the place at which the ranks meet, for messages.
  virtual std::string describe() const { return "the program's rendezvous"; }

  // The same on all ranks, if they ask equally often: "zero/0", then "zero/1".
  std::string fresh_name() { return "zero/" + std::to_string(names_++); }

 private:
  int names_ = 0;
};

}  // namespace zero
