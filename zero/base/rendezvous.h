// The rendezvous of a job's ranks without MPI: each rank stores a few bytes under a name, and waits
// for those of peers. A program with another launcher (a scheduler, Ray, Kubernetes) implements
// this class for RuntimeOptions::rendezvous.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "zero/base/messages.h"

namespace zero {

// One object on each rank, used by one thread at a time: while a Runtime starts and, if ranks are
// on several hosts, in collective calls that make groups.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Keys are set once each.
  virtual void set(const std::string& key, std::string_view value) = 0;
  // Waits until a rank has set the key. Throws StalledError with the key's name if none has within
  // the limit.
  virtual std::string get(const std::string& key, std::chrono::milliseconds limit) = 0;
  // Waits until all ranks have called barrier() with this name, which may be used once.
  virtual void barrier(const std::string& name, std::chrono::milliseconds limit);
  // Returns messages for ranks on several hosts, under a name that may be used once. Null: there
  // are none, and all ranks must be on the same host. Collective.
  virtual std::unique_ptr<Messages> connect(const std::string& name,
                                            std::chrono::milliseconds limit);
  // The rendezvous in error messages: "the store at 127.0.0.1:29500".
  virtual std::string describe() const { return "the program's rendezvous"; }

  // Returns a new name, equal on all ranks after equally many calls: "zero/0", then "zero/1".
  std::string fresh_name() { return "zero/" + std::to_string(names_++); }

 private:
  int names_ = 0;
};

}  // namespace zero
